"""The file of one part: eight bytes of length, a header of safetensors, the payload; ``docs/store.md`` has it in full.

Everything that a header says follows from namespace, key and part, but for the checksum: so a reader knows the bytes
that it must find, and a writer in another language may order them otherwise.
"""

import json
from dataclasses import dataclass
from math import prod
from typing import Any

from statehal.portability.parts import PartLayout
from statehal.portability.store import checksum
from statehal.portability.store.encoding import canonical
from statehal.portability.store.namespace import STORE_FORMAT, Namespace
from statehal.portability.store.outcome import Outcome, Reason, missed
from statehal.spec import itemsize

FORMAT = "statehal part"
LENGTH_BYTES = 8
MOST_HEADER_BYTES = 1 << 20
"""A longer header is refused before it is read."""
ALIGNMENT = 64
"""The payload starts at a multiple of it."""

DTYPES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "int8": "I8",
    "uint8": "U8",
    "int32": "I32",
    "int64": "I64",
}
"""What safetensors calls the dtypes of state."""

_ITEM_BYTES = {name: itemsize(dtype) for dtype, name in DTYPES.items()}

ZEROS = b"0" * checksum.DIGITS
"""For the digits of a checksum where it is made."""
_KEY = "k" * 64
_MARK = f'"{checksum.NAME}:'.encode()


class PartError(Exception):
    """A stored part contradicts itself; inside the store only."""


class NewerPart(Exception):
    """A part of a later version of the format; inside the store only."""


class PartFormat:
    """The header of one part of every block of a namespace.

    Attributes:
        part: what it describes.
        head_bytes: of length and header together, which is where the payload starts.
        payload_bytes: of the payload.
        file_bytes: of the whole file.
    """

    def __init__(self, namespace: Namespace, part: PartLayout, *, checked: bool) -> None:
        self.part = part
        self.metadata = {
            "checksum": f"{checksum.NAME}:{ZEROS.decode()}" if checked else checksum.NONE,
            "format": FORMAT,
            "format_version": str(STORE_FORMAT),
            "key": _KEY,
            "layout": layout_text(part),
            "namespace": namespace.digest,
            "part": part.id,
            "payload_bytes": str(part.nbytes),
            "spec": namespace.spec_fingerprint,
        }
        self.tensors = tensors(part)
        header = json.dumps({"__metadata__": self.metadata, **self.tensors}, separators=(",", ":")).encode()
        header += b" " * (-(LENGTH_BYTES + len(header)) % ALIGNMENT)
        head = len(header).to_bytes(LENGTH_BYTES, "little") + header
        self.head_bytes = len(head)
        self.payload_bytes = part.nbytes
        self.file_bytes = self.head_bytes + self.payload_bytes
        self._before, self._after = head.split(_KEY.encode())
        self.digits_at = head.find(_MARK) + len(_MARK) if checked else None

    def head(self, key: str) -> bytearray:
        """Length and header of this part of a block, with zeros for the digits of the checksum."""
        return bytearray(self._before + key.encode() + self._after)

    def unlike(self, claims: "Claims", key: str) -> Outcome | None:
        """A miss where what an intact part says of itself is not what this one would; ``None`` where it is."""
        expected = self.metadata | {"key": key}
        names = sorted((expected.keys() | claims.metadata.keys()) - {"checksum"})
        found = [name for name in names if claims.metadata.get(name) != expected.get(name)]
        if found:
            says = "; ".join(f"{x} is {claims.metadata.get(x)!r:.80}: expected {expected.get(x)!r:.80}" for x in found)
            elsewhere = {"namespace", "key", "part"} & set(found)
            return missed(Reason.MISPLACED if elsewhere else Reason.OTHER_LAYOUT, says)
        if claims.tensors != self.tensors:
            return missed(Reason.OTHER_LAYOUT, "its tensors are others than its metadata say")
        return None


def head_bytes(namespace: Namespace, part: PartLayout) -> int:
    """Bytes of length and header before the payload of a part that carries a checksum; a multiple of ``ALIGNMENT``."""
    return PartFormat(namespace, part, checked=True).head_bytes


def layout_text(part: PartLayout) -> str:
    """The part's description in canonical JSON, without the sub-pool's name, which is the host's own."""
    return canonical({name: value for name, value in part.as_dict().items() if name != "subpool"}).decode()


def tensors(part: PartLayout) -> dict[str, dict[str, Any]]:
    """The header's entries: one tensor ``[heads, rows, dim]`` a piece, named ``LAYER.SECTION``."""
    return {
        f"{piece.layer}.{piece.section.name}": {
            "dtype": DTYPES[piece.section.dtype],
            "shape": [piece.heads[1] - piece.heads[0], piece.rows, piece.section.dim],
            "data_offsets": [piece.offset, piece.offset + piece.nbytes],
        }
        for piece in part.pieces
    }


@dataclass(frozen=True)
class Claims:
    """What a part says of itself.

    Attributes:
        metadata: strings by name.
        tensors: dtype, shape and offsets by name.
        head_bytes: where its payload starts.
        checksum: the digits of its checksum; ``None`` where it carries none.
        blanked: its header as the checksum sees it: with zeros for the digits.
    """

    metadata: dict[str, str]
    tensors: dict[str, dict[str, Any]]
    head_bytes: int
    checksum: str | None
    blanked: bytearray


def header_length(data: bytes | bytearray, file_bytes: int) -> int:
    """The header's length, from the first bytes of a file.

    Raises:
        PartError: it is longer than the file, or than a header may be.
    """
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if length > min(MOST_HEADER_BYTES, file_bytes - LENGTH_BYTES):
        raise PartError(f"a header of {length:,} bytes in a file of {file_bytes:,}, of which at most 1 MiB is header")
    return length


def parse(head: bytes | bytearray, file_bytes: int) -> Claims:
    """Read length and header.

    Raises:
        PartError: they contradict themselves or the file's length.
        NewerPart: a later version of the format wrote them.
    """
    header = bytearray(head[LENGTH_BYTES:])
    try:
        entries = json.loads(header, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise PartError(f"its header is no JSON: {error}") from None
    if not isinstance(entries, dict) or not isinstance(metadata := entries.pop("__metadata__", None), dict):
        raise PartError("its header has no metadata")
    if not all(isinstance(value, str) for value in metadata.values()) or metadata.get("format") != FORMAT:
        raise PartError(f"its metadata are not those of a {FORMAT!r}")
    version = metadata.get("format_version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 10) or int(version) < STORE_FORMAT:
        raise PartError(f"it has format_version={version!r:.20}: expected {STORE_FORMAT} or more")
    if int(version) > STORE_FORMAT:
        raise NewerPart(f"it has format version {version}, and this is version {STORE_FORMAT} (fix: update statehal)")
    payload = _payload_bytes(entries)
    if payload != file_bytes - len(head) or metadata.get("payload_bytes") != str(payload):
        raise PartError(
            f"its tensors take {payload:,} bytes, its metadata say {metadata.get('payload_bytes')!r:.20} and "
            f"{file_bytes - len(head):,} follow the header"
        )
    digits = _digits(metadata.get("checksum", ""))
    if digits is not None:
        if header.count(_MARK) != 1:
            raise PartError("its header names the checksum twice")
        start = header.find(_MARK) + len(_MARK)
        header[start : start + checksum.DIGITS] = ZEROS
    return Claims(metadata, entries, len(head), digits, header)


def _digits(text: str) -> str | None:
    if text == checksum.NONE:
        return None
    name, _, digits = text.partition(":")
    if name != checksum.NAME or len(digits) != checksum.DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise PartError(f"it has checksum={text!r:.40}: expected {checksum.NAME}: and {checksum.DIGITS} digits")
    return digits


def _payload_bytes(entries: dict[str, Any]) -> int:
    """Bytes of tensors that follow each other without holes."""
    spans = []
    for name, entry in entries.items():
        match entry:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)], **rest} if not rest:
                if dtype not in _ITEM_BYTES or not all(type(size) is int and size >= 0 for size in shape):
                    raise PartError(f"its tensor {name!r:.40} has dtype {dtype!r:.20} and shape {shape!r:.40}")
                if stop - start != prod(shape) * _ITEM_BYTES[dtype]:
                    raise PartError(f"its tensor {name!r:.40} has offsets {start} to {stop} for shape {shape!r:.40}")
                spans.append((start, stop))
            case _:
                raise PartError(f"its tensor {name!r:.40} is not described as one")
    at = 0
    for start, stop in sorted(spans):
        if start != at:
            raise PartError(f"its tensors leave a hole or overlap at byte {at}")
        at = stop
    return at


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found
