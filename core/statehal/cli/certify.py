"""``statehal certify``: which sub-pools' bytes serve every topology, and why the others' do not."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from statehal.cli.output import print_table
from statehal.cli.plan_input import add_specs, chosen_specs
from statehal.errors import ArgumentError
from statehal.portability import Grouping, Topology, certify

if TYPE_CHECKING:
    from statehal.cli import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("certify", help="which state can be read under another topology")
    add_specs(parser)
    for axis, what in (
        ("tensor", "ranks that divide heads"),
        ("pipeline", "stages"),
        ("context", "ranks of a sequence"),
    ):
        parser.add_argument(f"--{axis}", type=int, default=1, metavar="N", help=f"{what} (default 1)")
    parser.add_argument("--stage-layers", metavar="N,N,..", help="layers of each stage (default: evenly)")
    parser.add_argument("--layers", type=int, default=1, metavar="N", help="layers of a part (default 1)")
    parser.add_argument("--head-groups", type=int, default=16, metavar="N", help="most head groups (default 16)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Judge and print; 0 where every sub-pool is certified, 1 where one is of exactly this topology."""
    title, specs = chosen_specs(args)
    topology = Topology(args.tensor, args.pipeline, args.context, _counts(args.stage_layers))
    grouping = Grouping.of(specs, layers=args.layers, head_groups=args.head_groups)
    verdicts = certify(specs, topology, grouping=grouping)
    if args.json:
        print(
            json.dumps({"topology": asdict(topology), "subpools": [asdict(one) for one in verdicts.values()]}, indent=2)
        )
    else:
        axes = f"tensor={topology.tensor} pipeline={topology.pipeline} context={topology.context}"
        print(f"{title}, {axes}\n")
        print_table(
            ("sub-pool", "certified", "reason"),
            [(one.subpool, "yes" if one.certified else "no", one.reason) for one in verdicts.values()],
        )
    return 0 if all(one.certified for one in verdicts.values()) else 1


def _counts(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(one) for one in text.split(","))
    except ValueError:
        raise ArgumentError(f"--stage-layers {text!r}: expected counts such as 12,12") from None
