"""The page around the drawings: style, legend and tables with the same numbers."""

from collections.abc import Iterable, Sequence
from html import escape

from statehal.cli.picture.envelope import envelope, thin_fields
from statehal.cli.picture.numbers import count, size
from statehal.cli.picture.slabs import slabs
from statehal.layout import FieldLayout, PoolLayout
from statehal.pool import PoolPlan, SubPoolPlan

# Okabe and Ito's colours, which people with any kind of colour blindness tell apart.
_COLOURS = ("#0072b2", "#e69f00", "#56b4e9", "#f0e442", "#009e73", "#cc79a7", "#d55e00")

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1b1b; --dim: #555555; --line: #8a8a8a; --page: #d9dde3;
        --elided: #f1f2f4; --entry: #c4d3e0; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #17191c; --ink: #ececec; --dim: #b0b4ba; --line: #7d838c; --page: #3b424c; --elided: #23272d;
          --entry: #34495c; }
}
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
       font: 1rem/1.5 system-ui, sans-serif; }
h1, h2 { overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 46rem; }
.wide { overflow-x: auto; } svg { display: block; min-width: 52rem; width: 100%; height: auto; }
svg text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: var(--ink); }
svg rect { stroke: var(--paper); stroke-width: 1; }
svg .paper { fill: var(--paper); stroke: none; } svg .hatch { stroke: var(--dim); stroke-width: 2; }
svg .hole, svg .sink { stroke: var(--line); stroke-width: .5; }
svg .page { fill: var(--page); stroke: var(--line); } svg .entry { fill: var(--entry); stroke: var(--line); }
svg .elided { fill: var(--elided); stroke: var(--line); } svg .drawn { fill: var(--dim); }
svg .plate { fill: var(--paper); stroke: none; } svg .torn { fill: none; stroke: var(--line); stroke-width: 1.5; }
svg .note, svg .address { fill: var(--dim); }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: .25rem 0; padding: 0; }
li svg { display: inline-block; min-width: 0; width: 1rem; height: 1rem; vertical-align: -.15rem;
         margin-right: .35rem; }
"""


def render(plan: PoolPlan, title: str) -> str:
    """The whole file."""
    names = list(dict.fromkeys(field.name for sub in plan.subpools.values() for field in sub.layout.fields))
    colours = {name: f"c{index % len(_COLOURS)}" for index, name in enumerate(names)}
    style = _STYLE + "".join(
        f"svg .{cls} {{ fill: {colour}; }} svg text.on.{cls} {{ fill: {'#ffffff' if cls == 'c0' else '#000000'}; }}\n"
        for cls, colour in zip((f"c{i}" for i in range(len(_COLOURS))), _COLOURS, strict=True)
    )
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(_summary(plan))}</p>"]
    for index, sub in enumerate(plan.subpools.values()):
        body += _subpool(f"p{index}", sub, colours)
    body.append("<h2>Slabs</h2>")
    for index, region in enumerate(plan.regions):
        body.append(f'<div class="wide">{slabs(f"r{index}", plan, region)}</div>')
    body.append(_totals(plan))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _summary(plan: PoolPlan) -> str:
    longest = plan.largest_request()
    fits = "a request of any length fits" if longest is None else f"the longest single request has {longest:,} tokens"
    return f"{plan.total_bytes:,} bytes ({size(plan.total_bytes)}), {count(plan.page_size, 'token')} a page; {fits}" + (
        f"; {plan.unused_bytes:,} bytes of the budget make no whole slab or page." if plan.unused_bytes else "."
    )


def _subpool(key: str, sub: SubPoolPlan, colours: dict[str, str]) -> list[str]:
    layout = sub.layout
    unit = "slot" if sub.spec.kind == "slots" else f"page of {count(layout.page_size, 'token')}"
    padding = layout.page_bytes - layout.payload_bytes
    wasted = f"{padding:,} of them ({sub.waste:.2%}) padding, which is hatched" if padding else "none of them padding"
    most = count(sub.max_pages, "slot" if sub.spec.kind == "slots" else "page")
    text = f"One {unit} takes {layout.page_bytes:,} bytes, {wasted}. At most {most}."
    fields = (
        (
            field.name,
            _layers(field),
            " x ".join(map(str, field.row_shape)),
            field.dtype,
            f"{field.row_bytes:,}",
            f"{field.payload_bytes:,}",
            ", ".join(f"{kind}, ratio {layout.form(field.name, kind).ratio:,}" for kind in layout.kinds(field.name)),
        )
        for field in layout.fields
    )
    head = ("field", "layers", "row", "dtype", "bytes a row", "bytes a page", "address form")
    return [
        f"<h2>{escape(sub.name)}</h2>",
        f"<p>{escape(text)}</p>",
        f'<div class="wide">{envelope(key, sub.name, layout, colours)}</div>',
        _legend(layout, colours),
        _table(head, fields, ("bytes a row", "bytes a page")),
    ]


def _layers(field: FieldLayout) -> str:
    users = sum(len(group) for group in field.layers)
    shared = f", used by {users}" if users > len(field.layers) else ""
    return f"{len(field.layers)}{shared}"


def _legend(layout: PoolLayout, colours: dict[str, str]) -> str:
    thin = thin_fields(layout)
    items = "".join(
        f'<li><svg viewBox="0 0 16 16" aria-hidden="true"><rect class="{colours[field.name]}" width="16" height="16"/>'
        f"</svg>{escape(field.name)}{' (too thin to see at this scale)' if field.name in thin else ''}</li>"
        for field in layout.fields
    )
    return f"<ul>{items}</ul>"


def _totals(plan: PoolPlan) -> str:
    head = (
        "sub-pool",
        "slab bytes",
        "slabs",
        "pages a slab",
        "page bytes",
        "payload bytes",
        "bytes a token",
        "waste",
        "pages",
    )
    rows = (
        (
            name,
            *_slab_numbers(sub),
            f"{sub.layout.page_bytes:,}",
            f"{sub.layout.payload_bytes:,}",
            f"{sub.bytes_per_token:,.1f}",
            f"{sub.waste:.2%}",
            f"{sub.max_pages:,}",
        )
        for name, sub in plan.subpools.items()
    )
    return _table(head, rows, head[1:])


def _slab_numbers(sub: SubPoolPlan) -> tuple[str, str, str]:
    if not sub.region.shared:
        return "-", "-", "-"
    return f"{sub.region.slab_bytes:,}", f"{sub.region.num_slabs:,}", f"{sub.pages_per_slab:,}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[str]) -> str:
    """A table; columns named in ``numeric`` stand to the right."""
    kinds = [' class="number"' if name in numeric else "" for name in head]
    top = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
