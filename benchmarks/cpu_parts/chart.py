"""The rows as one SVG that needs nothing else: bars as multiples of the copy, on a logarithmic scale."""

from collections.abc import Sequence
from math import log10

from statehal.bench import Row
from statehal.cli.picture.drawing import WIDTH, Drawing

LEFT, RIGHT = 330.0, 260.0
"""Units for the names of rows, and for the number and the name behind the longest bar."""

BAR, STEP, GAP, TOP = 12.0, 16.0, 8.0, 60.0
OURS = "statehal"
STYLE = """
svg { --ink: #1b1b1b; --dim: #555; --line: #c3c7cd; --ours: #1f6f8b; --peer: #c4a15a; --paper: #fff;
      font: 13px ui-monospace, "DejaVu Sans Mono", monospace; background: var(--paper); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #ececec; --dim: #b0b4ba; --line: #4a515b; --ours: #6cb8d2; --peer: #a5863f; --paper: #17191c; }
}
text { fill: var(--ink); } text.note { fill: var(--dim); } rect.ours { fill: var(--ours); }
rect.peer { fill: var(--peer); } path.line { stroke: var(--line); } path.copy { stroke: var(--ink); }
"""


def chart(rows: Sequence[Row], title: str) -> str:
    """The file's text; rows of fixed costs, which are no multiples of anything, are left out."""
    shown = [row for row in rows if row.name != "fixed cost"]
    bars = [(row, [(OURS, row.of_copy), *((n, row.of_copy * t) for n, t in row.peers.items())]) for row in shown]
    values = [value for _, all_of in bars for _, value in all_of]
    low, high = min([0.5, *values]), max([10.0, *values])

    def across(value: float) -> float:
        return (WIDTH - LEFT - RIGHT) * log10(value / low) / log10(high / low)

    text = "Times as multiples of a copy of the same bytes; shorter is better, and the line at 1 is the copy."
    drawing, y = Drawing("cpu"), TOP
    drawing.text(0, 16, f"{title}, one thread")
    drawing.text(0, 34, text, "note")
    bottom = TOP + sum(GAP + STEP * len(all_of) for _, all_of in bars)
    for value in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500):
        if low <= value <= high:
            x = LEFT + across(value)
            drawing.text(x, TOP - 6, f"{value:g}", "note", "middle")
            drawing.path(f"M{x:.2f} {TOP:g} V{bottom:g}", "copy" if value == 1 else "line")
    for row, all_of in bars:
        y += GAP
        drawing.text(0, y + BAR - 1, f"{row.name}, {row.case}")
        for name, value in all_of:
            kind = "ours" if name == OURS else "peer"
            drawing.rect(LEFT, y, across(value), BAR, kind, f"{name}: {value:.2f} x the copy")
            drawing.text(LEFT + across(value) + 5, y + BAR - 1, f"{value:.2f} {'' if name == OURS else name}".rstrip())
            y += STEP
    made = drawing.svg(title, text, bottom + 10)
    return made.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        "<defs>", f"<style>{STYLE}</style><defs>", 1
    )
