"""``statehal store ls|stat|verify|gc DIR``: what a store's directory holds, whether it is right, and making room."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from statehal.cli.output import print_styled, print_table
from statehal.cli.picture import size
from statehal.cli.plan_input import parse_size
from statehal.cli.progress import bytes_bar, spinner
from statehal.errors import ArgumentError, StatehalError
from statehal.portability.store import FileStore, Reason
from statehal.portability.store.maintenance import Inventory, inventory, opened, verified

if TYPE_CHECKING:
    from statehal.cli import Subparsers
    from statehal.portability.store.directory import Directory

_BAD = (Reason.CORRUPT, Reason.MISPLACED, Reason.FAILED)
_NUMBERS = ("parts", "blocks", "bytes")
_STATUS = "exit status: 0 all is well, 1 verify found a damaged part, 2 the directory is no store or cannot be used"


def add_parser(subparsers: "Subparsers") -> None:
    """Declare the command and its actions."""
    parser = subparsers.add_parser("store", help="list, check and clean a directory of stored state", epilog=_STATUS)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in {
        "ls": "the blocks, those used most recently first",
        "stat": "namespaces and what they take, the count of bytes, temporaries and quarantine",
        "verify": "read every part against its checksum, its name and its namespace; changes nothing",
        "gc": "sweep what dead processes left, count anew, and make room",
    }.items():
        action = actions.add_parser(name, help=text, epilog=_STATUS)
        action.add_argument("directory", metavar="DIR", help="the store")
        action.add_argument("--json", action="store_true", help="print one JSON object")
        if name in ("ls", "verify"):
            action.add_argument("--namespace", metavar="DIGEST", help="of this one only; its first digits are enough")
        if name == "ls":
            action.add_argument("--limit", type=int, metavar="N", help="print this many blocks")
        if name == "gc":
            action.add_argument(
                "--max-bytes", type=parse_size, metavar="SIZE", help="evict until the directory holds at most this much"
            )


def run(args: argparse.Namespace) -> int:
    """Do the action; a directory that is no store is status 2."""
    action = {"ls": _ls, "stat": _stat, "verify": _verify, "gc": _gc}[args.action]
    try:
        return action(args, opened(args.directory))
    except StatehalError as error:
        print(f"statehal: {error}", file=sys.stderr)
        return 2


def _ls(args: argparse.Namespace, directory: "Directory") -> int:
    with spinner("listing"):
        blocks = sorted(directory.blocks(_namespace(args, directory)), key=lambda block: (-block.used_ns, block.key))
    shown = blocks if args.limit is None else blocks[: args.limit]
    if args.json:
        rows = [
            {
                "namespace": block.namespace,
                "key": block.key,
                "bytes": block.nbytes,
                "used": _time(block.used_ns),
                "parts": {part.id: part.nbytes for part in sorted(block.parts, key=lambda part: part.id)},
            }
            for block in shown
        ]
        print(
            json.dumps({"directory": args.directory, "blocks": rows, "not_shown": len(blocks) - len(shown)}, indent=2)
        )
        return 0
    cells = [
        (block.namespace[:12], block.key[:16], f"{len(block.parts):,}", f"{block.nbytes:,}", _time(block.used_ns))
        for block in shown
    ]
    print_table(("namespace", "key", "parts", "bytes", "last use"), cells, numeric=_NUMBERS)
    if len(shown) < len(blocks):
        print(f"and {len(blocks) - len(shown):,} more")
    return 0


def _stat(args: argparse.Namespace, directory: "Directory") -> int:
    with spinner("listing"):
        found = inventory(directory)
    if args.json:
        print(json.dumps(_stat_json(args.directory, found), indent=2))
        return 0
    print(f"{args.directory}: {found.nbytes:,} bytes ({size(found.nbytes)})")
    counted = "nobody has counted" if found.counted is None else f"{found.counted:,} bytes"
    print(f"shared count: {counted}")
    print(
        f"being written: {found.writing[0]:,} files, {found.writing[1]:,} bytes; left by the dead: {found.abandoned:,}"
    )
    print(f"in quarantine: {found.quarantined[0]:,} files, {found.quarantined[1]:,} bytes")
    cells = [
        (
            one.digest[:12],
            *_described(one.document),
            f"{one.blocks:,}",
            f"{one.parts:,}",
            f"{one.nbytes:,}",
            _time(one.used_ns[1]),
        )
        for one in found.namespaces
    ]
    print()
    print_table(("namespace", "model", "state", "blocks", "parts", "bytes", "last use"), cells, numeric=_NUMBERS)
    return 0


def _stat_json(directory: str, found: Inventory) -> dict[str, Any]:
    return {
        "directory": directory,
        "bytes": found.nbytes,
        "counted": found.counted,
        "writing": {"files": found.writing[0], "bytes": found.writing[1], "abandoned": found.abandoned},
        "quarantined": {"files": found.quarantined[0], "bytes": found.quarantined[1]},
        "namespaces": [
            {
                "namespace": one.digest,
                "document": one.document,
                "blocks": one.blocks,
                "parts": one.parts,
                "bytes": one.nbytes,
                "oldest_use": _time(one.used_ns[0]),
                "newest_use": _time(one.used_ns[1]),
            }
            for one in found.namespaces
        ],
    }


def _verify(args: argparse.Namespace, directory: "Directory") -> int:
    namespace = _namespace(args, directory)
    with spinner("listing"):
        total = sum(block.nbytes for block in directory.blocks(namespace))
    counts: Counter[str] = Counter()
    problems = []
    with bytes_bar("verifying", total) as advance:
        for _, part, outcome in verified(directory, namespace):
            counts[str(outcome.reason or "right")] += 1
            if not outcome:
                problems.append({"path": part.path, "reason": str(outcome.reason), "detail": outcome.detail})
            advance(part.nbytes)
    bad = sum(counts[reason] for reason in _BAD)
    if args.json:
        print(json.dumps({"directory": args.directory, "parts": counts, "problems": problems}, indent=2))
        return 1 if bad else 0
    for problem in problems:
        print(f"{problem['reason']}: {problem['path']}: {problem['detail']}")
    told = ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items())) or "no parts"
    print_styled(f"{'damaged' if bad else 'ok'}: {told}", "bold red" if bad else "bold green")
    return 1 if bad else 0


def _gc(args: argparse.Namespace, directory: "Directory") -> int:
    with spinner("collecting"):
        store = FileStore(directory.root, create=False)
        done = store.gc(args.max_bytes)
    swept = store.counts()["swept"]["temporaries"]  # some when it was opened
    if args.json:
        print(json.dumps({"directory": args.directory} | vars(done) | {"swept": swept}, indent=2))
        return 0
    print(f"swept {swept:,} temporaries of dead processes")
    print(f"evicted {done.parts:,} parts, {done.nbytes:,} bytes; spared {done.pinned:,} pinned blocks")
    print(f"holds {done.used:,} bytes ({size(done.used)})")
    return 0


def _namespace(args: argparse.Namespace, directory: "Directory") -> str | None:
    """The one namespace that begins with what was given."""
    if args.namespace is None:
        return None
    known = [digest for digest, _ in directory.described()]
    found = [digest for digest in known if digest.startswith(args.namespace)]
    if len(found) != 1:
        raise ArgumentError(
            f"{len(found)} namespaces begin with {args.namespace!r}: expected one of "
            f"{', '.join(sorted(one[:12] for one in known)) or 'none'} (fix: statehal store stat {args.directory})"
        )
    return found[0]


def _described(document: Mapping[str, Any] | None) -> tuple[str, str]:
    """The model, and the state such as ``Attention, 24 layers, bfloat16``."""
    if document is None:
        return "not described", ""
    spec = document["spec"]
    return _printable(document["model"]), _printable(f"{spec['kind']}, {len(spec['layers'])} layers, {spec['dtype']}")


def _printable(text: str) -> str:
    """Without what would steer a terminal: the directory may be anybody's."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds") if ns else ""
