"""The table of worst values, for terminals and for the documentation."""

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {
    "rows": "rows",
    "registers": "registers",
    "scalar_registers": "scalar registers",
    "spills": "spills",
    "scratch_bytes": "scratch",
    "shared_bytes": "shared",
    "occupancy": "occupancy",
    "bulk_width": "bulk width",
    "narrow_share": "narrow",
    "half_products": "16-bit products",
    "word_products": "32-bit products",
    "address_bits": "address",
}


def table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a ``Report.summary()``."""
    columns = ["kernel", "target", *COLUMNS.values()]
    rows = [
        [entry["kernel"], entry["target"], *(_cell(name, entry[name]) for name in COLUMNS)]
        for entry in summary["worst"]
    ]
    return columns, rows


def markdown(summary: Mapping[str, Any]) -> str:
    """A ``Report.summary()``, or its JSON read back, as a Markdown table of the worst values by kernel and target."""
    columns, rows = table(summary)
    rule = ["---", "---", *("---:" for _ in COLUMNS)]
    return "\n".join(_line(cells) for cells in (columns, rule, *(_quoted(row) for row in rows))) + "\n"


def _cell(name: str, value: Any) -> str:
    if name in ("occupancy", "narrow_share"):
        return f"{100 * value:.0f}%"
    if name == "bulk_width" and value == 0:
        return "-"
    return str(value)


def _quoted(row: Sequence[str]) -> list[str]:
    return [f"`{row[0]}`", *row[1:]]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
