"""The lines of the table, and what of them is not as it must be."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offload_table.rows import WRITER, bar

Rows = list[dict[str, Any]]


def made(
    directory: Path, families: Sequence[str], readers: Sequence[dict[str, Any]], rank_readers: Sequence[dict[str, Any]]
) -> dict[str, Rows]:
    """Let one process write and the others read: the lines of ``"models"`` and of ``"ranks"``.

    Raises:
        RuntimeError: a process failed; with what it said.
    """
    models = {"what": "models", "families": families}
    jobs = [models | WRITER | {"action": "write"}, *(models | one | {"action": "read"} for one in readers)]
    jobs.append({"what": "ranks", "action": "write", "tensor": 1} | WRITER)
    jobs += [{"what": "ranks", "action": "read"} | one for one in rank_readers]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "offload_table.worker", str(directory), json.dumps(jobs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a process of the table failed:\n{done.stdout}{done.stderr}")
    lines: Rows = [json.loads(line) for line in done.stdout.splitlines()]
    written = [line for line in lines if line["action"] == "write"]
    if any(line["reused"] for line in written):
        raise RuntimeError(f"a process that writes found something: {written}")
    digests = {line["family"]: line["digest"] for line in written}
    found = [line for line in lines if line["action"] == "read"]
    for line in found:
        if line["what"] == "models":
            line["writers_bits"] = line.pop("digest") == digests[line["family"]]
        for name in ("action", "families", "why"):
            line.pop(name, None)
    order = {family: place for place, family in enumerate(families)}
    return {
        "models": sorted((line for line in found if line["what"] == "models"), key=lambda line: order[line["family"]]),
        "ranks": [line for line in found if line["what"] == "ranks"],
    }


def faults(found: dict[str, Rows]) -> list[str]:
    """What of the table is not as it must be."""
    wrong = [
        f"{row['family']} on {row['layout']}, page {row['page_size']}, {row['backend']}: {row}"
        for row in found["models"]
        if row["reused"] != bar(row["asked"])
        or not row["tokens_equal"]
        or not row["difference"] <= 1e-5
        or (row["backend"] == WRITER["backend"] and not row["writers_bits"])
    ]
    return wrong + [
        f"{row['subpool']} on {row['tensor']} ranks: {row}"
        for row in found["ranks"]
        if row["reused"] != bar(row["asked"]) or row["wrong"] or not row["bytes"]
    ]
