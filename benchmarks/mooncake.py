"""What storing and loading parts on Mooncake costs, beside its own client's calls moving the same bytes.

``python benchmarks/mooncake.py [--json] [--rounds N]``; starts a master and a process that holds the memory, over TCP
on the loopback. The exit code is 1 where the bar is missed, and 0 with a line that says so where Mooncake is not
installed.

Parts are moved from and to memory that was registered with the store, as an offloader's is, and again from and to
memory that was not (``copied``), which has no bar. The client moves the same payloads from and to the same memory in
one call, which is its fastest, with no header, no checksum, and nothing looked up. In every round each action has its
turn, and what was read is compared; a ratio is the median, over rounds, of the client's time over the store's.
"""

import argparse
import ctypes
import json
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import truediv
from pathlib import Path
from typing import Any

from statehal.errors import MissingDependency
from statehal.portability.grouping import Grouping
from statehal.portability.parts import parts
from statehal.portability.store import MooncakeStore, Namespace, PartRef, block_key, head_bytes
from statehal.portability.store.mooncake_client import client_class, new_client
from statehal.spec import Attention

sys.path[0] = str(Path(__file__).resolve().parents[1] / "tests")  # the cluster is the tests'

from store.mooncake_cluster import cluster  # noqa: E402

BAR = 0.8
ROUND_BYTES = 32 << 20
LANE_BYTES = 10 << 20


@dataclass(frozen=True)
class Row:
    """One measurement: GB/s of payload, and the client's time over the store's, by the clock and by the processor."""

    name: str
    part_kib: int
    gb_s: float
    client_gb_s: float
    ratio: float
    cpu_ratio: float
    bar: float | None
    passed: bool


class Side:
    """Memory with one place a part, and room before each for what a store writes there."""

    def __init__(self, store: MooncakeStore, count: int, room: int, size: int) -> None:
        self.memory = mmap.mmap(-1, count * (room + size))
        self.registered = store.register(self.memory)
        view = memoryview(self.memory)
        starts = range(room, len(view), room + size)
        self.payloads = [view[start : start + size] for start in starts]
        first = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.pointers = [first + start for start in starts]

    def fill(self, data: Sequence[bytes]) -> None:
        for payload, one in zip(self.payloads, data, strict=True):
            payload[:] = one

    def holds(self, data: Sequence[bytes]) -> bool:
        return [bytes(payload) for payload in self.payloads] == data


class Scene:
    """Parts of one size, in the store twice and as plain values of the client."""

    def __init__(self, client: Any, store: MooncakeStore, layers: int, heads: int) -> None:
        spec = Attention("full", tuple(range(layers)), kv_heads=heads, head_dim=128, dtype="bfloat16")
        grouping = Grouping.of([spec], object_tokens=64, layers=layers, head_groups=1)
        part = parts(spec, grouping)[0]
        namespace = Namespace.of(spec, model=f"benchmark {layers} {heads}", revision="0", grouping=grouping)
        self.size, self.count = part.nbytes, ROUND_BYTES // part.nbytes
        self.client, self.store = client, store
        room = head_bytes(namespace, part)
        self.data = [os.urandom(self.size) for _ in range(self.count)]
        self.blank = [bytes(self.size)] * self.count
        self.source, self.target = (Side(store, self.count, room, self.size) for _ in range(2))
        self.source.fill(self.data)
        self.refs, self.other_refs = (
            [PartRef(namespace, block_key([which, number]), part) for number in range(self.count)] for which in (0, 1)
        )
        self.names = [f"plain/{self.size}/{number}" for number in range(self.count)]
        self.put()
        self.get()  # now both sides are registered, and the client may use them, too

    def put(self) -> None:
        assert all(self.source.registered.put(list(zip(self.refs, self.source.payloads, strict=True))))

    def get(self) -> None:
        assert all(self.target.registered.get(list(zip(self.refs, self.target.payloads, strict=True))))

    def copied_put(self) -> None:
        assert all(self.store.put(list(zip(self.other_refs, self.source.payloads, strict=True))))

    def copied_get(self) -> None:
        assert all(self.store.get(list(zip(self.other_refs, self.target.payloads, strict=True))))

    def plain_put(self) -> None:
        self.plain(self.client.batch_put_from, self.source.pointers, 0)

    def plain_get(self) -> None:
        self.plain(self.client.batch_get_into, self.target.pointers, self.size)

    def plain(self, call: Callable[..., list[int]], pointers: list[int], done: int) -> None:
        assert set(call(self.names, pointers, [self.size] * self.count)) == {done}

    def forget(self) -> None:
        """Remove all values."""
        self.client.batch_remove(self.names, True)
        self.store.delete(self.refs + self.other_refs)

    def end(self) -> None:
        self.forget()
        for side in (self.source, self.target):
            side.registered.release()


def rows(scene: Scene, rounds: int) -> list[Row]:
    """All measurements of parts of one size; the first round is a warm-up."""
    clocks: dict[str, list[tuple[float, float]]] = {}
    puts = [scene.plain_put, scene.put, scene.copied_put]
    gets = [scene.plain_get, scene.get, scene.copied_get]
    for number in range(rounds + 1):
        scene.forget()
        turn = number % len(puts)
        for action in (*puts[turn:], *puts[:turn], *gets[turn:], *gets[:turn]):
            if action in gets:
                scene.target.fill(scene.blank)
            begun = time.perf_counter(), time.process_time()
            action()
            taken = time.perf_counter() - begun[0], time.process_time() - begun[1]
            assert action not in gets or scene.target.holds(scene.data), f"{action.__name__} read other bytes"
            if number:
                clocks.setdefault(action.__name__, []).append(taken)
    total = scene.count * scene.size / 1e9
    found = []
    for name in ("put", "get", "copied_put", "copied_get"):
        plain, ours = clocks[f"plain_{name.removeprefix('copied_')}"], clocks[name]
        ratio, cpu_ratio = (
            statistics.median(map(truediv, [one[clock] for one in plain], [one[clock] for one in ours]))
            for clock in (0, 1)
        )
        speed, plain_speed = (round(total / statistics.median(one[0] for one in taken), 2) for taken in (ours, plain))
        bar = BAR if scene.size >= 256 << 10 and "copied" not in name else None
        passed = bar is None or ratio >= bar
        ratios = round(ratio, 2), round(cpu_ratio, 2)
        found.append(Row(name, scene.size >> 10, speed, plain_speed, *ratios, bar, passed))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each action")
    arguments = parser.parse_args()
    try:
        client_class()
    except MissingDependency as error:
        print(f"not measured: {error}")
        return 0
    measured = []
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), segment_bytes=256 << 20) as made:
        client: Any = new_client(
            made.master, made.metadata, hostname="127.0.0.1", segment_bytes=0, buffer_bytes=16 << 20, protocol="tcp",
            devices="",
        )  # fmt: skip
        with MooncakeStore(made.master, made.metadata, connect=lambda: client) as store:
            for layers, heads in ((1, 2), (1, 8), (4, 8), (16, 8)):
                scene = Scene(client, store, layers, heads)
                measured += rows(scene, arguments.rounds)
                scene.end()
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in measured]}))
    else:
        print(f"{'':12}{'part KiB':>10}{'GB/s':>8}{'client':>8}{'ratio':>8}{'cpu':>8}{'bar':>6}")
        for row in measured:
            figures = (
                f"{row.part_kib:>10}{row.gb_s:>8}{row.client_gb_s:>8}{row.ratio:>8}{row.cpu_ratio:>8}{row.bar or '':>6}"
            )
            print(f"{row.name:12}{figures}{'' if row.passed else '  missed'}")
    return 0 if all(row.passed for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
