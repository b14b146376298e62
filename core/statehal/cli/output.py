"""Printing: tables of rich on a terminal, plain columns elsewhere."""

import sys
from collections.abc import Sequence


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[str] = ()) -> None:
    """Print rows of text under their column names; ``numeric`` columns are aligned to the right."""
    if sys.stdout.isatty():
        _print_rich(columns, rows, numeric)
        return
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if name in numeric else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: brackets in a cell are no markup
    Console().print(table)


def print_styled(text: str, style: str) -> None:
    """Print one line, in a style of rich on a terminal."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        Console().print(Text(text, style=style), soft_wrap=True)
    else:
        print(text)
