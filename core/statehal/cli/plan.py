"""``statehal plan``: what a budget holds, before anything is allocated, and a picture of it."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statehal.cli.output import print_table
from statehal.cli.picture import render, size
from statehal.cli.plan_input import add_specs, chosen_specs, parse_budget, parse_size
from statehal.errors import ArgumentError
from statehal.layout import PoolLayout, conv_window, layer_major, page_major, token_major
from statehal.pool import PoolPlan, plan
from statehal.spec import Spec

if TYPE_CHECKING:
    from statehal.cli import Subparsers

_LAYOUTS: dict[str, Callable[[Spec, int], PoolLayout]] = {
    "page-major": page_major,
    "token-major": token_major,
    "layer-major": layer_major,
}
_NUMBERS = ("pages", "a slab", "page bytes", "bytes a token", "waste", "row bytes", "ratio")


def add_parser(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("plan", help="slabs, pages, waste and the longest request of a budget")
    add_specs(parser)
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--total-bytes", type=parse_size, metavar="SIZE", help="the budget, such as 8GiB")
    budget.add_argument("--tokens", type=int, metavar="N", help="the budget that holds this many tokens")
    parser.add_argument("--requests", type=int, default=1, metavar="R", help="slots beside the tokens (default 1)")
    parser.add_argument("--page-size", type=int, default=16, metavar="P", help="tokens of a page (default 16)")
    parser.add_argument("--layout", choices=_LAYOUTS, default="page-major", help="of tokens (default page-major)")
    parser.add_argument("--waste-limit", type=float, default=0.02, metavar="PART", help="of a slab (default 0.02)")
    parser.add_argument(
        "--budget", type=parse_budget, action="append", default=[], metavar="NAME=SIZE",
        help="bytes of a sub-pool that cannot share slabs",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the plan as one JSON object")
    parser.add_argument("--html", type=Path, metavar="FILE", help="draw the pages into one self-contained file")


def run(args: argparse.Namespace) -> int:
    """Plan, print, draw."""
    title, specs = chosen_specs(args)

    def layout(spec: Spec, page_size: int) -> PoolLayout:
        return conv_window(spec) if spec.kind == "slots" else _LAYOUTS[args.layout](spec, page_size)

    made = plan(
        specs,
        total_bytes=args.total_bytes,
        tokens=args.tokens,
        requests=args.requests,
        page_size=args.page_size,
        layouts=layout,
        waste_limit=args.waste_limit,
        budgets=dict(args.budget),
    )
    if args.html:
        try:
            args.html.write_text(render(made, Path(title).name), encoding="utf-8")
        except OSError as error:
            raise ArgumentError(
                f"--html {args.html}: {error.strerror} (fix: name a file that can be written)"
            ) from None
    if args.json:
        print(json.dumps(as_dict(made), indent=2))
    else:
        _print(made, title)
        if args.html:
            print(f"\npicture written to {args.html}")
    return 0


def as_dict(plan: PoolPlan) -> dict[str, Any]:
    """The plan as JSON can hold it; ``largest_request`` is null where any length fits."""
    return {
        "page_size": plan.page_size,
        "requested_bytes": plan.requested_bytes,
        "total_bytes": plan.total_bytes,
        "unused_bytes": plan.unused_bytes,
        "largest_request": plan.largest_request(),
        "regions": [
            {
                "offset": region.offset,
                "slab_bytes": region.slab_bytes,
                "num_slabs": region.num_slabs,
                "members": list(region.members),
            }
            for region in plan.regions
        ],
        "subpools": {
            name: {
                "kind": sub.spec.kind,
                "max_pages": sub.max_pages,
                "pages_per_slab": sub.pages_per_slab,
                "page_bytes": sub.layout.page_bytes,
                "payload_bytes": sub.layout.payload_bytes,
                "bytes_per_token": sub.bytes_per_token,
                "waste": sub.waste,
                "forms": {
                    field.name: [
                        {"kind": kind, "ratio": sub.layout.form(field.name, kind).ratio}
                        for kind in sub.layout.kinds(field.name)
                    ]
                    for field in sub.layout.fields
                },
            }
            for name, sub in plan.subpools.items()
        },
    }


def _print(plan: PoolPlan, title: str) -> None:
    print(f"{title}: {plan.total_bytes:,} bytes ({size(plan.total_bytes)}) in use, {plan.unused_bytes:,} left over")
    for region in plan.regions:
        owners = ", ".join(region.members)
        if region.shared:
            print(f"{region.num_slabs:,} slabs of {region.slab_bytes:,} bytes for {owners}; slab 0 is the sink")
        else:
            print(f"{region.total_bytes:,} bytes for {owners} alone; page 0 is the sink")
    print()
    print_table(
        ("sub-pool", "pages", "a slab", "page bytes", "bytes a token", "waste"),
        [
            (
                name,
                f"{sub.max_pages:,}",
                f"{sub.pages_per_slab:,}" if sub.region.shared else "-",
                f"{sub.layout.page_bytes:,}",
                f"{sub.bytes_per_token:,.1f}",
                f"{sub.waste:.2%}",
            )
            for name, sub in plan.subpools.items()
        ],
        numeric=_NUMBERS,
    )
    print()
    print_table(
        ("sub-pool", "field", "row", "dtype", "row bytes", "form", "ratio"),
        [
            (
                name,
                field.name,
                " x ".join(map(str, field.row_shape)),
                field.dtype,
                f"{field.row_bytes:,}",
                kind,
                f"{sub.layout.form(field.name, kind).ratio:,}",
            )
            for name, sub in plan.subpools.items()
            for field in sub.layout.fields
            for kind in sub.layout.kinds(field.name)
        ],
        numeric=_NUMBERS,
    )
    longest = plan.largest_request()
    print(f"\nlongest single request: {'any length' if longest is None else f'{longest:,} tokens'}")
