"""The report of ``statehal check`` for people: short, with what failed last and the command that runs it again."""

from collections import Counter
from typing import TYPE_CHECKING

from statehal.cli.output import print_styled, print_table
from statehal.testing.report import LEFT

if TYPE_CHECKING:
    from statehal.testing import Report, Result

_INPUTS, _EVIDENCE = 300, 900
"""Characters of one line of a failure: of its inputs, and of any other."""


def print_report(report: "Report", *, verbose: bool) -> None:
    """Print the verdict, what is wrong with the run, what was not run, and what failed.

    Args:
        verbose: name every check that was not run or failed like another, and cut no line short.
    """
    print_styled(report.verdict, "bold green" if report.ok else "bold red")
    for method, plugin in report.overrides.items():
        print(f"{method} is done by {plugin}, and judged as {report.backend}'s")
    for fault in report.faults:
        print(f"\n{fault}")
    _print_left_out(report, verbose)
    for first, *others in _alike(report):
        _print_failure(report, first, others, verbose)
    if not report.ok and report.results:
        print()
        print_styled(report.verdict, "bold red")


def _print_left_out(report: "Report", verbose: bool) -> None:
    for (status, reason), names in report.reasons().items():
        if status != "filtered" or verbose:
            print(f"\n{LEFT if status == 'filtered' else status}, {len(names)}: {reason}")
            print("\n".join(f"  {name}" for name in names))
    if not verbose:
        _print_table([_lacks(result) for result in report.results if result.status == "filtered"])


def _print_table(lacks: list[list[str]]) -> None:
    """What is not claimed, with how many checks it takes away; each counts for the first that it lacks."""
    methods: dict[str, set[str]] = {}
    for need in (need for needs in lacks for need in needs if _is_method(need)):
        for name in need.split(" or "):
            area, method = name.split(".", 1)
            methods.setdefault(area, set()).add(method)
    rows: Counter[str] = Counter()
    for need, *_ in lacks:
        area = need.split(".")[0]
        rows[f"{area}.{', '.join(sorted(methods[area]))}" if _is_method(need) else _tag(need)] += 1
    if rows:
        print()
        print_table((LEFT, "checks"), [(what, str(count)) for what, count in sorted(rows.items())], numeric=("checks",))


def _lacks(result: "Result") -> list[str]:
    """What a check needs and does not get, out of the reason: methods and tags, or several joined by ``or``."""
    return [part.rsplit(" is ", 1)[0] for part in result.reason.split("; ")]


def _is_method(need: str) -> bool:
    return "." in need and not need.endswith(("graph_capturable", "host_sync_free"))


def _tag(need: str) -> str:
    tag, *others = need.split(" or ")
    return f"{tag} or {len(others)} more, not claimed" if others else f"{tag}, not claimed"


def _alike(report: "Report") -> list[list["Result"]]:
    """The failures; those that raised the same error, which is no assertion, together."""
    groups: dict[str, list[Result]] = {}
    for result in report.failures:
        judged = result.by in ("assertion", "coverage", "unexpected pass")
        groups.setdefault(result.check if judged else result.message.splitlines()[1], []).append(result)
    return list(groups.values())


def _print_failure(report: "Report", result: "Result", others: list["Result"], verbose: bool) -> None:
    print()
    for line in result.message.splitlines():
        print(line if verbose else _short(line))
    if others:
        count = f"{len(others)} more check{'s' * (len(others) != 1)}"
        names = ": " + ", ".join(other.check for other in others) if verbose else ", which --verbose names"
        print(f"the same in {count}{names}")
    device = f" --device {report.device}" if report.device != "cpu" else ""
    profile = f" --profile {report.profile}" if report.profile != "ci" else ""
    print(f"run again: statehal check {report.backend}{device}{profile} --only {result.check}")


def _short(line: str) -> str:
    """The line without its middle, if it is too long: a fix stands at the end."""
    most = _INPUTS if line.startswith("with ") else _EVIDENCE
    return line if len(line) <= most else f"{line[: most - 100]} [...] {line[-100:]} (--verbose prints all of it)"
