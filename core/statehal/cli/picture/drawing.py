"""One SVG, written by hand: rectangles and text whose width is known."""

from html import escape

WIDTH = 1000.0
"""Units across; ``MARGIN`` of them are left free on each side."""

MARGIN = 2.0
FONT = 13.0
LETTER = 0.62 * FONT
"""Units that a letter takes at most, in the monospaced fonts of the page."""

THIN = 4.0
"""Units across below which pages and entries are not drawn one by one."""


def fits(text: str, width: float) -> bool:
    """Whether a text can stand in that width with a little air."""
    return len(text) * LETTER + 6 <= width


def short(name: str) -> str:
    """A name that leaves room for other words in a line."""
    return name if len(name) <= 40 else f"{name[:39]}\u2026"


class Drawing:
    """Collects shapes; ``svg`` gives the element, with a title and a description for those who cannot see it.

    Args:
        key: makes the ids of this drawing differ from those of others in the file.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, cls: str, title: str = "", **data: int | str
    ) -> None:
        """A rectangle; ``cls`` ``"hole"`` or ``"sink"`` fills it with this drawing's hatching."""
        fill = f' fill="url(#{cls}-{self.key})"' if cls in ("hole", "sink") else ""
        attributes = f' x="{x:.4f}" y="{y:g}" width="{width:.4f}" height="{height:g}"'
        attributes += "".join(f' data-{name}="{escape(str(value))}"' for name, value in data.items())
        inner = f"><title>{escape(title)}</title></rect>" if title else "/>"
        self._parts.append(f'<rect class="{cls}"{fill}{attributes}{inner}')

    def text(self, x: float, y: float, text: str, cls: str = "", anchor: str = "start") -> None:
        """A line of text."""
        self._parts.append(f'<text class="{cls}" x="{x:.2f}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def inside(self, x: float, y: float, width: float, height: float, lines: list[str], cls: str = "") -> None:
        """Lines of text in the middle of a box, as many as fit."""
        lines = [line for line in lines if fits(line, width)][: max(1, int(height // 16))]
        first = y + height / 2 + FONT / 3 - (len(lines) - 1) * 8
        for index, line in enumerate(lines):
            self.text(x + width / 2, first + index * 16, line, cls, "middle")

    def path(self, commands: str, cls: str) -> None:
        """A path."""
        self._parts.append(f'<path class="{cls}" d="{commands}"/>')

    def svg(self, title: str, description: str, height: float) -> str:
        """The element."""
        key = self.key
        patterns = "".join(
            f'<pattern id="{name}-{key}" width="{step}" height="{step}" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate({turn})"><rect class="paper" width="{step}" height="{step}"/>'
            f'<line class="hatch" x1="0" y1="0" x2="0" y2="{step}"/></pattern>'
            for name, step, turn in (("hole", 6, 45), ("sink", 4, -45))
        )
        return (
            f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-labelledby="t-{key} d-{key}">'
            f'<title id="t-{key}">{escape(title)}</title><desc id="d-{key}">{escape(description)}</desc>'
            f"<defs>{patterns}</defs>{''.join(self._parts)}</svg>"
        )
