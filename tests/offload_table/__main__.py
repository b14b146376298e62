"""``python -m offload_table DOCS`` runs every process, a minute, and writes ``offload-table.json`` and ``.md``."""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from offload_table.page import render
from offload_table.rows import FAMILIES, RANK_READERS, READERS
from offload_table.table import faults, made


def main() -> int:
    docs = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        found: dict[str, Any] = made(Path(directory), FAMILIES, READERS, RANK_READERS)
    found["versions"] = {"transformers": version("transformers"), "torch": version("torch")}
    (docs / "offload-table.json").write_text(json.dumps(found, indent=1) + "\n")
    (docs / "offload-table.md").write_text(render(found))
    wrong = faults(found)
    sys.stderr.write("".join(f"{one}\n" for one in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
