"""What storing and loading parts on Mooncake costs, beside its own client's calls moving the same bytes.

``python benchmarks/mooncake.py [--json] [--rounds N]``; starts a master and a process that holds the memory, over TCP
on the loopback. The exit code is 1 where the bar is missed, and 0 with a line that says so where Mooncake is not
installed. The rounds of all actions alternate; a ratio is the median, over rounds, of the client's time over the
store's.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from operator import truediv
from pathlib import Path
from typing import Any

from statehal.errors import MissingDependency
from statehal.portability.grouping import Grouping
from statehal.portability.parts import parts
from statehal.portability.store import MooncakeStore, Namespace, PartRef, block_key
from statehal.portability.store.mooncake_client import client_class, new_client
from statehal.spec import Attention

sys.path[0] = str(Path(__file__).resolve().parents[1] / "tests")  # the cluster is the tests'

from store.mooncake_cluster import cluster  # noqa: E402

BAR = 0.8
ROUND_BYTES = 32 << 20
CALL_BYTES = 8 << 20  # what the client is given at a time, as the store gives it


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


class Scene:
    """Parts of one size, in the store and as plain values of the client, from and to the same buffers."""

    def __init__(self, client: Any, store: MooncakeStore, layers: int, heads: int) -> None:
        spec = Attention("full", tuple(range(layers)), kv_heads=heads, head_dim=128, dtype="bfloat16")
        grouping = Grouping.of([spec], object_tokens=64, layers=layers, head_groups=1)
        part = parts(spec, grouping)[0]
        namespace = Namespace.of(spec, model=f"benchmark {layers} {heads}", revision="0", grouping=grouping)
        self.size = part.nbytes
        self.count = ROUND_BYTES // self.size
        self.client, self.store = client, store
        self.refs = [PartRef(namespace, block_key([number]), part) for number in range(self.count)]
        self.source, self.target = (bytearray(os.urandom(self.size * self.count)) for _ in range(2))
        self.views = [memoryview(one) for one in (self.source, self.target)]
        self.addresses = [ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in (self.source, self.target)]
        for address in self.addresses:
            assert client.register_buffer(address, self.size * self.count) == 0
        self.names = [f"plain/{self.size}/{number}" for number in range(self.count)]

    def pieces(self, index: int) -> list[tuple[PartRef, memoryview]]:
        view = self.views[index]
        return [(ref, view[at * self.size : (at + 1) * self.size]) for at, ref in enumerate(self.refs)]

    def put(self) -> None:
        assert all(self.store.put(self.pieces(0)))

    def get(self) -> None:
        assert all(self.store.get(self.pieces(1)))

    def plain(self, call: Callable[..., list[int]], index: int, done: int) -> None:
        step = max(1, CALL_BYTES // self.size)
        for start in range(0, self.count, step):
            names = self.names[start : start + step]
            pointers = [self.addresses[index] + at * self.size for at in range(start, start + len(names))]
            assert set(call(names, pointers, [self.size] * len(names))) == {done}

    def plain_put(self) -> None:
        self.plain(self.client.batch_put_from, 0, 0)

    def plain_get(self) -> None:
        self.plain(self.client.batch_get_into, 1, self.size)

    def forget(self) -> None:
        self.client.batch_remove(self.names, True)
        self.store.delete(self.refs)

    def end(self) -> None:
        for address in self.addresses:
            self.client.unregister_buffer(address)


def rows(scene: Scene, rounds: int) -> list[Row]:
    """All measurements of parts of one size; the first round is a warm-up."""
    clocks: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        actions = [scene.plain_put, scene.put, scene.plain_get, scene.get]
        for action in actions if number % 2 else [actions[index] for index in (1, 0, 3, 2)]:
            begun = time.perf_counter(), time.process_time()
            action()
            taken = time.perf_counter() - begun[0], time.process_time() - begun[1]
            if number:
                clocks.setdefault(action.__name__, []).append(taken)
        assert scene.source == scene.target
        scene.views[1][: scene.size] = bytes(scene.size)
        scene.forget()
    total = scene.count * scene.size / 1e9
    found = []
    for name in ("put", "get"):
        plain, ours = clocks[f"plain_{name}"], clocks[name]
        ratio, cpu_ratio = (
            statistics.median(map(truediv, [one[clock] for one in plain], [one[clock] for one in ours]))
            for clock in (0, 1)
        )
        speed, plain_speed = (round(total / statistics.median(one[0] for one in taken), 2) for taken in (ours, plain))
        bar = BAR if scene.size >= 256 << 10 else None
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
        print(f"{'':6}{'part KiB':>10}{'GB/s':>8}{'client':>8}{'ratio':>8}{'cpu':>8}{'bar':>6}")
        for row in measured:
            figures = (
                f"{row.part_kib:>10}{row.gb_s:>8}{row.client_gb_s:>8}{row.ratio:>8}{row.cpu_ratio:>8}{row.bar or '':>6}"
            )
            print(f"{row.name:6}{figures}{'' if row.passed else '  missed'}")
    return 0 if all(row.passed for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
