"""How the slabs of a region divide into pages."""

from statehal.cli.picture.drawing import MARGIN, THIN, WIDTH, Drawing, fits, short
from statehal.cli.picture.numbers import count, size
from statehal.pool import PoolPlan, Region, SubPoolPlan

_INNER = WIDTH - 2 * MARGIN
_HEIGHT = 30.0


def slabs(key: str, plan: PoolPlan, region: Region) -> str:
    """The SVG of a region: its slabs in a row, and one slab to scale for each sub-pool that may own it."""
    drawing = Drawing(key)
    if not region.shared:
        return _alone(drawing, plan.subpools[region.members[0]], region)
    title = f"{count(region.num_slabs, 'slab')} of {region.slab_bytes:,} bytes, shared by {', '.join(region.members)}"
    drawing.text(MARGIN, 16, f"{count(region.num_slabs, 'slab')} of {size(region.slab_bytes)}, not to scale", "note")
    _row(drawing, 24, "slab", region.num_slabs)
    y = 72.0
    for name in region.members:
        y = _slab(drawing, y, name, plan.subpools[name])
    divided = "; ".join(
        f"a slab of {name} is {count(plan.subpools[name].pages_per_slab, 'page')}" for name in region.members
    )
    return drawing.svg(title, f"{title}; slab 0 is the sink; {divided}.", y)


def _alone(drawing: Drawing, sub: SubPoolPlan, region: Region) -> str:
    pages = sub.layout.num_pages
    title = f"{count(pages, 'page')} of {sub.layout.page_bytes:,} bytes for {sub.name} alone"
    text = f"{short(sub.name)} alone: {count(pages, 'page')} of {size(sub.layout.page_bytes)}, not to scale"
    drawing.text(MARGIN, 16, text, "note")
    _row(drawing, 24, "page", pages)
    return drawing.svg(title, f"{title}, {region.total_bytes:,} bytes in all; page 0 is the sink.", 64)


def _row(drawing: Drawing, y: float, word: str, number: int) -> None:
    """Equal boxes, the first of them the sink; most of many in one box of words."""
    shown = list(range(number)) if number <= 8 else [0, 1, 2, 3, None, number - 1]
    wide = 2.0 if None in shown else 1.0
    unit = _INNER / (len(shown) - 1 + wide)
    x = MARGIN
    for index in shown:
        width = unit * wide if index is None else unit
        cls = "elided" if index is None else "sink" if index == 0 else "page"
        text = f"{number - 5:,} more" if index is None else "" if index == 0 else f"{index:,}"
        drawing.rect(x, y, width, _HEIGHT, cls, f"{word} {index}" if index is not None else text)
        if index == 0:
            drawing.rect(x + unit / 2 - 36, y + 5, 72, _HEIGHT - 10, "plate")
            drawing.inside(x, y, width, _HEIGHT, ["the sink"])
        else:
            words = text if index is None else f"{word} {text}"
            drawing.inside(x, y, width, _HEIGHT, [words if fits(words, width) else text])
        x += width


def _slab(drawing: Drawing, y: float, name: str, sub: SubPoolPlan) -> float:
    """One slab to scale, divided into pages, each with its padding hatched."""
    k = sub.pages_per_slab
    lost = sub.layout.page_bytes - sub.layout.payload_bytes
    padding = f", {size(lost)} of each padding" if lost else ""
    text = f"a slab of {short(name)}: {count(k, 'page')} of {size(sub.layout.page_bytes)}{padding}, to scale"
    drawing.text(MARGIN, y + 13, text)
    scale = _INNER / sub.region.slab_bytes
    page, rest = sub.layout.page_bytes * scale, lost * scale
    single = k if page >= THIN else 1
    words = next((word for word in ("page ", "") if fits(f"{word}{k - 1}", page - rest)), None)
    for index in range(single):
        x = MARGIN + index * page
        data: dict[str, int | str] = {"bytes": sub.layout.page_bytes, "subpool": name}
        drawing.rect(x, y + 20, page, _HEIGHT, "page", f"page {index} of its slab", **data)
        if rest > 0.2:
            drawing.rect(x + page - rest, y + 20, rest, _HEIGHT, "hole", f"padding: {size(lost)}")
        if words is not None:
            drawing.inside(x, y + 20, page - rest, _HEIGHT, [f"{words}{index}"])
    if k > single:
        x = MARGIN + single * page
        drawing.rect(x, y + 20, WIDTH - MARGIN - x, _HEIGHT, "elided", f"{k - single} more pages")
        drawing.inside(
            x, y + 20, WIDTH - MARGIN - x, _HEIGHT, [f"{count(k - single, 'more page')}, too thin to be drawn singly"]
        )
    return y + 20 + _HEIGHT + 14
