"""What a run leaves: one JSON object, whole on disk after every row."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gpu_parts.figures import PeerRow, Proof, Row

T = TypeVar("T")

SCHEMA = 1
"""Version of the JSON form: a key that is taken away or changes its meaning raises it, a new one does not."""


@dataclass
class Report:
    """All that was found so far.

    Attributes:
        path: of the JSON file; ``None`` keeps nothing on disk.
        quiet: what people read goes to the standard error, because JSON goes to the standard output.
        about: the machine and the versions.
        copies: bandwidth of copies by size.
        finished: the run came to its end; ``False`` in a file that was cut off.
        part: of the run, that it is in.
        faults: what went wrong outside of rows, graphs, compilation and kit.
    """

    path: Path | None
    quiet: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    copies: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    graphs: list[Proof] = field(default_factory=list)
    compiled: list[Proof] = field(default_factory=list)
    kit: dict[str, Any] = field(default_factory=dict)
    peers: list[PeerRow] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    finished: bool = False
    part: str = "start"
    started: float = field(default_factory=time.monotonic)
    _writing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    @property
    def failures(self) -> list[str]:
        """Everything that failed, in words; peers do not count."""
        found = [f"{row.name}, {row.case}: {row.failed}" for row in self.rows if row.failed]
        for what, proofs in (("graph of", self.graphs), ("compiled", self.compiled)):
            found += [f"{what} {proof.name}: {proof.reason}" for proof in proofs if proof.status == "failed"]
        return found + list(self.kit.get("failed", [])) + self.faults

    @property
    def missed(self) -> list[str]:
        """The rows that missed their goals."""
        return [f"{row.name}, {row.case}: {row.goal}" for row in self.rows if row.verdict == "missed"]

    @property
    def status(self) -> int:
        """The exit status: 2 where something failed, 1 where a goal was missed, else 0."""
        return 2 if self.failures else 1 if self.missed else 0

    def as_json(self) -> dict[str, Any]:
        """A JSON value of everything."""
        return {
            "schema": SCHEMA,
            "benchmark": "gpu",
            "finished": self.finished,
            "part": self.part,
            "seconds": round(self.seconds, 1),
            "status": self.status,
            "about": self.about,
            "copies": self.copies,
            "rows": [asdict(row) for row in self.rows],
            "graphs": [asdict(proof) for proof in self.graphs],
            "compiled": [asdict(proof) for proof in self.compiled],
            "kit": self.kit,
            "peers": [asdict(peer) for peer in self.peers],
            "failures": self.failures,
            "missed": self.missed,
        }

    def tell(self, text: str) -> None:
        """Print a line for people."""
        print(text, file=sys.stderr if self.quiet else sys.stdout, flush=True)

    def add(self, to: list[T], item: T, line: Callable[[T], str]) -> None:
        """Keep an item, on disk too, and print its line."""
        to.append(item)
        self.save()
        self.tell(line(item))

    def save(self) -> None:
        """Replace the file by one with all that is known now; whoever reads it sees the old one or the new one."""
        if self.path is None:
            return
        with self._writing:
            partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            partial.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")
            partial.replace(self.path)
