"""What loading and storing parts costs: medians, beside a plain read and a plain write of the same bytes.

``python benchmarks/store.py [--json] [--rounds N] [--directory D]``; the exit code is 1 where the bar is missed. One
thread; the rounds of all actions alternate, and a ratio is the median of the rounds' ratios.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from operator import truediv
from pathlib import Path

from statehal.portability.grouping import Grouping
from statehal.portability.parts import PartLayout, parts
from statehal.portability.store import FileStore, Namespace, PartRef, block_key
from statehal.spec import Attention

BAR = 0.7
ROUND_BYTES = 128 << 20
"""What one round reads or writes, past what caches of a processor hold."""


@dataclass(frozen=True)
class Row:
    """One measurement: GB/s of payload, and the plain action's time over the store's, in the same run."""

    name: str
    part_kib: int
    gb_s: float
    plain_gb_s: float
    ratio: float
    bar: float | None
    passed: bool


class Scene:
    """Files of one size, in a store and plain, and the buffers that they are read into."""

    def __init__(self, root: Path, layers: int) -> None:
        spec = Attention("full", tuple(range(layers)), kv_heads=8, head_dim=128, dtype="bfloat16")
        grouping = Grouping.of([spec], object_tokens=256, layers=layers, head_groups=8)
        self.part: PartLayout = parts(spec, grouping)[0]
        namespace = Namespace.of(spec, model="benchmark", revision="0", grouping=grouping)
        self.count = max(1, ROUND_BYTES // self.part.nbytes)
        self.refs = [PartRef(namespace, block_key([number]), self.part) for number in range(self.count)]
        self.payload = os.urandom(self.part.nbytes)
        self.buffers = [bytearray(self.part.nbytes) for _ in self.refs]
        self.root = root
        self.stores = {checked: FileStore(root / f"store-{checked}", checksum=checked) for checked in (True, False)}
        for store in self.stores.values():
            assert all(store.put([(ref, self.payload) for ref in self.refs]))
        self.stored = sorted((root / "store-True").glob("namespaces/*/*/*.safetensors"))
        self.payload_at = self.stored[0].stat().st_size - self.part.nbytes
        self.files = [root / f"plain-{number}" for number in range(self.count)]
        self.write()

    def load(self, checked: bool) -> None:
        """Through the store."""
        assert all(self.stores[checked].get(list(zip(self.refs, self.buffers, strict=True))))

    def read(self) -> None:
        """The payloads of the same files, opened and read into the same buffers, each at once."""
        for path, buffer in zip(self.stored, self.buffers, strict=True):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            assert os.preadv(fd, [buffer], self.payload_at) == len(buffer)
            os.close(fd)

    def store(self, checked: bool) -> None:
        """Through the store, as new parts."""
        assert all(self.stores[checked].put([(ref, self.payload) for ref in self.refs]))

    def write(self) -> None:
        """The same bytes into new files."""
        for path in self.files:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            assert os.write(fd, self.payload) == len(self.payload)
            os.close(fd)

    def forget(self, checked: bool | None) -> None:
        """Remove what the next round stores, out of the time that is measured."""
        if checked is None:
            for path in self.files:
                path.unlink()
        else:
            assert all(self.stores[checked].delete(self.refs))


def clock(actions: dict[str, tuple[Callable[[], None], Callable[[], None]]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each action, in alternating rounds after a warm-up; the second function prepares it."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, (action, prepare) in actions.items():
            prepare()
            start = time.perf_counter()
            action()
            if number:
                times[name].append(time.perf_counter() - start)
    return times


def rows(root: Path, layers: int, rounds: int) -> list[Row]:
    """All measurements of parts of so many layers."""
    scene = Scene(root, layers)
    nothing = lambda: None  # noqa: E731
    reading = clock(
        {
            "plain": (scene.read, nothing),
            "load": (partial(scene.load, True), nothing),
            "load, no checksum": (partial(scene.load, False), nothing),
        },
        rounds,
    )
    assert all(buffer == scene.payload for buffer in scene.buffers)
    writing = clock(
        {
            "plain": (scene.write, partial(scene.forget, None)),
            "store": (partial(scene.store, True), partial(scene.forget, True)),
            "store, no checksum": (partial(scene.store, False), partial(scene.forget, False)),
        },
        rounds,
    )
    total = scene.count * scene.part.nbytes / 1e9
    found = []
    for times in (reading, writing):
        plain = times.pop("plain")
        for name, seconds in times.items():
            # by round: what disturbs one action of a round mostly disturbs its neighbours, too
            ratio = statistics.median(map(truediv, plain, seconds))
            bar = BAR if name == "load" and scene.part.nbytes >= 512 << 10 else None
            passed = bar is None or ratio >= bar
            speed, plain_speed = (round(total / statistics.median(one), 2) for one in (seconds, plain))
            found.append(Row(name, scene.part.nbytes >> 10, speed, plain_speed, round(ratio, 2), bar, passed))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each action")
    parser.add_argument("--directory", help="where to make the files; a temporary directory by default")
    arguments = parser.parse_args()
    measured = []
    for layers in (1, 4, 16, 64):
        root = Path(tempfile.mkdtemp(prefix="statehal-bench-", dir=arguments.directory))
        try:
            measured += rows(root, layers, arguments.rounds)
        finally:
            shutil.rmtree(root)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in measured]}))
    else:
        print(f"{'':22}{'part KiB':>10}{'GB/s':>8}{'plain':>8}{'ratio':>8}{'bar':>6}")
        for row in measured:
            figures = f"{row.part_kib:>10}{row.gb_s:>8}{row.plain_gb_s:>8}{row.ratio:>8}{row.bar or '':>6}"
            print(f"{row.name:22}{figures}{'' if row.passed else '  missed'}")
    return 0 if all(row.passed for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
