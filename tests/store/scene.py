"""A small model's parts, payloads that say which part they are of, and a reader of parts that shares no code."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from statehal.portability import Grouping, PartLayout, parts
from statehal.portability.store import FileStore, Namespace, PartRef, block_key
from statehal.spec import Attention, Spec

SPEC = Attention("full", (0, 2), kv_heads=4, head_dim=16, dtype="bfloat16")


@dataclass(frozen=True)
class Scene:
    """The blocks of one sub-pool."""

    namespace: Namespace
    parts: tuple[PartLayout, ...]

    def block(self, number: int) -> list[PartRef]:
        """The parts of a block."""
        key = block_key([number])
        return [PartRef(self.namespace, key, part) for part in self.parts]

    def blocks(self, count: int) -> list[list[PartRef]]:
        """The parts of the first blocks."""
        return [self.block(number) for number in range(count)]


def scene(spec: Spec = SPEC, *, object_tokens: int = 8, head_groups: int = 2, **named: Any) -> Scene:
    """The scene of a spec; ``named`` as of ``Namespace.of``."""
    grouping = Grouping.of([spec], object_tokens=object_tokens, head_groups=head_groups)
    given = {"model": "tiny", "revision": "r1"} | named
    return Scene(Namespace.of(spec, grouping=grouping, **given), parts(spec, grouping))


def payload(ref: PartRef) -> bytes:
    """Bytes that belong to this part alone: SHA-256 of its name, counted up."""
    name = f"{ref.namespace.digest}/{ref.key}/{ref.part.id}".encode()
    blocks = (
        hashlib.sha256(name + bytes([index % 256, index // 256])).digest() for index in range(1 + ref.part.nbytes // 32)
    )
    return b"".join(blocks)[: ref.part.nbytes]


def items(refs: list[PartRef]) -> list[tuple[PartRef, bytes]]:
    """Parts with their payloads."""
    return [(ref, payload(ref)) for ref in refs]


def buffers(refs: list[PartRef]) -> list[tuple[PartRef, bytearray]]:
    """Parts with memory to read them into, full of what is no payload."""
    return [(ref, bytearray(b"\xa5" * ref.part.nbytes)) for ref in refs]


def read(store: Any, refs: list[PartRef]) -> list[str]:
    """Of each part ``"right"``, ``"wrong"`` or the reason of its miss."""
    wanted = buffers(refs)
    outcomes = store.get(wanted)
    return [
        str(outcome.reason) if not outcome else "right" if bytes(buffer) == payload(ref) else "wrong"
        for outcome, (ref, buffer) in zip(outcomes, wanted, strict=True)
    ]


def path_of(root: Path, ref: PartRef) -> Path:
    """Where a part lies, by the description of the directory."""
    return root / "namespaces" / ref.namespace.digest / ref.key[:2] / f"{ref.key}.{ref.part.id}.safetensors"


def files(root: Path) -> list[Path]:
    """Every part in a directory."""
    return sorted(root.glob("namespaces/*/*/*.safetensors"))


def parse(data: bytes) -> tuple[dict[str, str], dict[str, Any], bytes]:
    """Metadata, tensors and payload of a part, whose checksum must be right: the page's description in ten lines."""
    length = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + length], data[8 + length :]
    tensors = json.loads(header)
    metadata = tensors.pop("__metadata__")
    name, _, digits = metadata["checksum"].partition(":")
    assert name == "xxh3_64"
    blanked = header.replace(digits.encode(), b"0" * 16)
    assert xxhash.xxh3_64_hexdigest(blanked + body) == digits
    return metadata, tensors, body


def rewritten(data: bytes, *, change: dict[str, str] | None = None, pad: int = 0, reverse: bool = False) -> bytes:
    """A part as another writer would have it: other order, other padding, other metadata, a right checksum."""
    metadata, tensors, body = parse(data)
    metadata = {**metadata, "checksum": "xxh3_64:" + "0" * 16, **(change or {})}
    entries = {"__metadata__": metadata, **tensors}
    if reverse:
        entries = {name: entries[name] for name in reversed(entries)}
    header = json.dumps(entries, indent=1).encode() + b" " * pad
    digits = xxhash.xxh3_64_hexdigest(header + body)
    header = header.replace(b"xxh3_64:" + b"0" * 16, b"xxh3_64:" + digits.encode())
    return len(header).to_bytes(8, "little") + header + body


def filled(root: Path, made: Scene, count: int = 2) -> FileStore:
    """A store that holds the first blocks."""
    store = FileStore(root)
    assert all(store.put(items([ref for block in made.blocks(count) for ref in block])))
    return store


def copy(source: Path, target: Path) -> Path:
    """A copy of a directory, for a test that damages it."""
    shutil.copytree(source, target)
    return target


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
