"""Which backend passes which topic: a table in Markdown, made of stored results of runs.

``python -m statehal.testing.matrix ROOT [BACKEND PROFILE [DEVICE]]`` runs ``ci`` on every backend of the
repository that is installed and ready here, or ``dev`` on one that is slow, stores what came of it in
``docs/conformance/BACKEND-DEVICE.json``, and writes the table of all the results into ``README.md``. A device is named
where it is none of the backend's own. Results of a device that this machine lacks stay as they were.
"""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from statehal.registry import get
from statehal.testing.report import STATUSES, Report

BEGIN, END = "<!-- conformance: made by `make matrix` -->", "<!-- end of conformance -->"


def ready(root: Path) -> list[tuple[str, str]]:
    """Every backend of the repository on each of its device types on which it is ready here."""
    projects = [root / "pyproject.toml", *root.glob("plugins/*/pyproject.toml")]
    own = {tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] for path in projects}
    registry = get()
    return [
        (name, device)
        for name, backend in registry.backends.items()
        if backend.source.distribution in own
        for device in sorted(backend.info.device_types)
        if registry.probe(name, device).state == "ready"
    ]


def stored(report: Report) -> dict[str, Any]:
    """Of a report what does not change from run to run."""
    whole = report.as_json()
    whole["results"] = [{key: result[key] for key in ("check", "status", "reason")} for result in whole["results"]]
    return whole


def file_name(report: Report) -> str:
    """Of a stored result: one backend may have run on one device by its vendor's schemas, too, and that is another."""
    kind = "-schemas" if report.evidence == "real schemas" else ""
    return f"{report.backend}-{report.device}{kind}.json"


def read(folder: Path) -> list[dict[str, Any]]:
    """All stored results, by name of file."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """A row a topic, a column a stored run."""
    longest = sorted(runs, key=lambda run: -len(run["results"]))  # a run of some topics does not decide their order
    topics = dict.fromkeys(topic(result) for run in longest for result in run["results"])
    head = ["topic", *heads(runs)]
    rows = [[f"`{name}`", *(_cell(run, name) for run in runs)] for name in topics]
    rows.append(["faults of the run", *("; ".join(run["faults"]) or "none" for run in runs)])
    rows.append(["profile", *(run["profile"] for run in runs)])
    rows.append(["evidence", *(run["evidence"] for run in runs)])
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def heads(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Backend and device of each run, and its evidence where another run has the same two."""
    names = [f"{run['backend']} on {run['device']}" for run in runs]
    return [
        f"{name}, {run['evidence']}" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)
    ]


def topic(result: Mapping[str, Any]) -> str:
    """The topic of a stored result."""
    name: str = result["check"]
    return name.split("/")[0]


def _cell(run: Mapping[str, Any], name: str) -> str:
    counts = Counter(result["status"] for result in run["results"] if topic(result) == name)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]) or "not run"


def insert(page: str, made: str) -> str:
    """The page with the table between its markers.

    Raises:
        ValueError: the page has no such markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{made}\n{end}{after}"


def main(folder: Path, page: Path, reports: Iterable[Report]) -> None:
    """Store these reports and write the table into the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for report in reports:
        path = folder / file_name(report)
        path.write_text(json.dumps(stored(report), indent=1) + "\n", encoding="utf-8")
    page.write_text(insert(page.read_text(encoding="utf-8"), table(read(folder))), encoding="utf-8")


if __name__ == "__main__":
    from statehal.testing import Target, run
    from statehal.testing.profiles import ProfileName

    root = Path(sys.argv[1])
    given = sys.argv[2:]
    backend, name, device = [*given, *("", "ci", "")[len(given) :]]
    profile_name: ProfileName = "dev" if name == "dev" else "ci"
    due = [(backend, device)] if device else [where for where in ready(root) if backend in ("", where[0])]
    main(root / "docs/conformance", root / "README.md", (run(Target(*one), profile_name=profile_name) for one in due))
