"""The file of a part, against the safetensors library and against a reader that knows the page alone."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from statehal.portability.store import FileStore, PartRef, Reason
from statehal.portability.store.reading import CHUNK_BYTES
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec
from store.scene import buffers, copy, files, filled, flipped, items, parse, path_of, payload, read, rewritten, scene

SPECS: dict[str, Spec] = {
    "attention": Attention("full", (0, 2), 4, 16, "bfloat16", v_head_dim=8),
    "scales": Attention("full", (1,), 2, 8, "int8", scales="per_token_head"),
    "indexer": Latent("mla", (0, 1), 16, 8, "bfloat16", extra=(ExtraField("indexer", (132,), "uint8"),)),
    "fp8": Attention("full", (0,), 2, 8, "float8_e4m3fn"),
    "fnuz": Attention("full", (0,), 2, 8, "float8_e4m3fnuz"),
    "latent": Latent("mla", (0, 1), 16, 8, "float16"),
    "conv": ConvRecurrent(
        "gdn", (3, 4), 32, 4, "bfloat16", sections=(8, 8, 16), section_heads=(2, 2, 4), state=(4, 4, 8),
    ),
}  # fmt: skip
DTYPES = {
    "BF16": torch.bfloat16, "F32": torch.float32, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F16": torch.float16,
}  # fmt: skip


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_part_is_a_safetensors_file_whose_tensors_are_the_pieces(spec: Spec, tmp_path: Path) -> None:
    made = scene(spec)
    filled(tmp_path, made, 1)
    for ref in made.block(0):
        path = path_of(tmp_path, ref)
        metadata, tensors, body = parse(path.read_bytes())
        assert body == payload(ref)
        with safe_open(path, "pt") as opened:
            assert opened.metadata() == metadata
            assert set(opened.keys()) == set(tensors) == {f"{one.layer}.{one.section.name}" for one in ref.part.pieces}
            for piece in ref.part.pieces:
                tensor = opened.get_tensor(f"{piece.layer}.{piece.section.name}")
                start, stop = piece.heads
                assert tuple(tensor.shape) == (stop - start, piece.rows, piece.section.dim)
                assert str(tensor.dtype) == f"torch.{piece.section.dtype}"
                raw = bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())
                assert raw == payload(ref)[piece.offset : piece.offset + len(raw)]


def test_the_metadata_say_what_the_bytes_are(tmp_path: Path) -> None:
    made = scene()
    filled(tmp_path, made, 1)
    ref = made.block(0)[1]
    metadata, _, _ = parse(path_of(tmp_path, ref).read_bytes())
    layout = json.loads(metadata.pop("layout"))
    assert metadata.pop("checksum").startswith("xxh3_64:")
    assert metadata == {
        "format": "statehal part",
        "format_version": "1",
        "key": ref.key,
        "namespace": ref.namespace.digest,
        "part": "layers0-1.heads1of2",
        "payload_bytes": "1024",
        "spec": ref.namespace.spec_fingerprint,
    }
    assert layout == {
        "heads": [1, 2], "kind": "span", "layers": [0, 1], "nbytes": 1024, "tokens": 8,
        "pieces": [
            {"dim": 16, "dtype": "bfloat16", "heads": [2, 4], "layer": 0, "offset": 0, "rows": 8, "section": "k"},
            {"dim": 16, "dtype": "bfloat16", "heads": [2, 4], "layer": 0, "offset": 512, "rows": 8, "section": "v"},
        ],
    }  # fmt: skip


@pytest.fixture(scope="module")
def one_part(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PartRef]:
    root = tmp_path_factory.mktemp("store")
    made = scene(Attention("full", (0,), 1, 4, "int8"), object_tokens=4, head_groups=1)
    filled(root, made, 1)
    return root, made.block(0)[0]


def a_bit_of_each_byte(data: bytes) -> list[int]:
    """And every bit of the header's length, of the version's digit, and of the last bytes."""
    version = data.index(b'"format_version":"1"') + len(b'"format_version":"')
    whole = {*range(8), version, *range(len(data) - 8, len(data))}
    return [8 * byte + bit for byte in range(len(data)) for bit in (range(8) if byte in whole else [byte * 5 % 8])]


def every_bit(data: bytes) -> list[int]:
    return list(range(8 * len(data)))


@pytest.mark.parametrize("choose", [a_bit_of_each_byte, pytest.param(every_bit, marks=pytest.mark.thorough)])
def test_a_flipped_bit_is_a_miss_with_a_reason_and_the_file_is_kept(
    one_part: tuple[Path, PartRef], choose: Callable[[bytes], list[int]]
) -> None:
    """Header length, header, metadata, padding, payload, to the last bit of the tail; the caller goes on."""
    root, ref = one_part
    path = path_of(root, ref)
    data = path.read_bytes()
    store = FileStore(root)
    found: dict[str, int] = {}
    bits = choose(data)
    for bit in bits:
        path.write_bytes(flipped(data, bit))
        (outcome,) = store.get(buffers([ref]))
        assert not outcome, f"bit {bit % 8} of byte {bit // 8} was not noticed"
        assert outcome.reason in (Reason.CORRUPT, Reason.NEWER_FORMAT)
        assert outcome.detail
        found[outcome.reason] = found.get(outcome.reason, 0) + 1
        aside = root / "quarantine" / ref.namespace.digest / path.name
        kept = aside if outcome.reason is Reason.CORRUPT else path
        assert kept.read_bytes() == flipped(data, bit)
    # only the digit of the format's version, in three of its bits, reads as a later version
    assert found == {Reason.CORRUPT: len(bits) - 3, Reason.NEWER_FORMAT: 3}
    path.write_bytes(data)
    assert read(store, [ref]) == ["right"]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 200, -1, -17])
def test_a_short_file_is_a_miss(one_part: tuple[Path, PartRef], tmp_path: Path, length: int) -> None:
    root, ref = copy(one_part[0], tmp_path / "copy"), one_part[1]
    path = path_of(root, ref)
    path.write_bytes(path.read_bytes()[:length])
    store = FileStore(root)
    assert [one.reason for one in store.exists([ref])] == [Reason.CORRUPT]
    assert read(store, [ref]) == ["corrupt"]
    assert read(store, [ref]) == ["absent"]
    assert store.counts()["get"] == {"corrupt": 1, "absent": 1}
    assert all(store.put(items([ref])))
    assert read(store, [ref]) == ["right"]


def test_a_tail_is_a_miss(one_part: tuple[Path, PartRef], tmp_path: Path) -> None:
    root, ref = copy(one_part[0], tmp_path / "copy"), one_part[1]
    path = path_of(root, ref)
    path.write_bytes(path.read_bytes() + b"\0")
    assert read(FileStore(root), [ref]) == ["corrupt"]


def test_a_part_of_many_pieces_is_read_and_checked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger than what is read at a time, also where the system gives and takes less than it is asked for."""
    made = scene(object_tokens=5000)
    refs = made.block(0)[:2]
    assert refs[0].part.nbytes > 2 * CHUNK_BYTES
    preadv, pwrite = os.preadv, os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:100_001], offset))
    assert all(FileStore(tmp_path).put(items(refs)))
    monkeypatch.undo()
    store = FileStore(tmp_path)
    assert read(store, refs) == ["right", "right"]
    parse(path_of(tmp_path, refs[0]).read_bytes())

    for most in (70_001, 300):

        def short(fd: int, views: list[memoryview], offset: int, most: int = most) -> int:
            return preadv(fd, [views[0][:most]], offset)

        monkeypatch.setattr(os, "preadv", short)
        assert read(store, refs) == ["right", "right"]
        monkeypatch.undo()
    path = path_of(tmp_path, refs[1])
    data = path.read_bytes()
    for byte in (-1, -refs[1].part.nbytes, -CHUNK_BYTES, -2 * CHUNK_BYTES - 7):
        path.write_bytes(flipped(data, 8 * (len(data) + byte) + 3))
        assert read(store, refs) == ["right", "corrupt"]


HOSTILE = {
    "a header of exabytes": ((1 << 62).to_bytes(8, "little") + b"{}", "of which at most 1 MiB is header"),
    "a header past the bound": ((2 << 20).to_bytes(8, "little") + b" " * (2 << 20), "of which at most 1 MiB is header"),
    "nested too deep": ((200_000).to_bytes(8, "little") + b"[" * 200_000, "is no JSON: maximum recursion depth"),
    "a number of many digits": (
        (100_010).to_bytes(8, "little") + b'{"a":' + b"1" * 100_000 + b"}    ", "is no JSON: Exceeds the limit"
    ),
    "not text": ((8).to_bytes(8, "little") + b"\xff" * 8, "is no JSON"),
    "a list": ((8).to_bytes(8, "little") + b"[1,2,3] ", "has no metadata"),
    "no metadata": ((16).to_bytes(8, "little") + b'{"a":"b"}       ', "has no metadata"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_a_miss(one_part: tuple[Path, PartRef], tmp_path: Path, data: bytes, message: str) -> None:
    root, ref = copy(one_part[0], tmp_path / "copy"), one_part[1]
    path_of(root, ref).write_bytes(data)
    (outcome,) = FileStore(root).get(buffers([ref]))
    assert outcome.reason is Reason.CORRUPT
    assert message in outcome.detail


@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_part_of_another_writer_is_read(
    one_part: tuple[Path, PartRef], tmp_path: Path, pad: int, reverse: bool
) -> None:
    root, ref = copy(one_part[0], tmp_path / "copy"), one_part[1]
    path = path_of(root, ref)
    path.write_bytes(rewritten(path.read_bytes(), pad=pad, reverse=reverse))
    store = FileStore(root)
    assert all(store.exists([ref]))
    assert read(store, [ref]) == ["right"]
    assert all(store.put(items([ref])))
    assert len(files(root)) == 1


CHANGES = {
    "another key": ({"key": "0" * 64}, "misplaced"),
    "another part": ({"part": "layers0-1.heads0of2"}, "misplaced"),
    "another namespace": ({"namespace": "0" * 64}, "misplaced"),
    "another spec": ({"spec": "0" * 64}, "other_layout"),
    "another layout": ({"layout": "{}"}, "other_layout"),
    "something added": ({"writer": "x"}, "other_layout"),
    "a later version": ({"format_version": "2"}, "newer_format"),
    "a version that is none": ({"format_version": "-1"}, "corrupt"),
    "another size": ({"payload_bytes": "31"}, "corrupt"),
    "another format": ({"format": "pt"}, "corrupt"),
    "a checksum of another kind": ({"checksum": "crc32:00000000"}, "corrupt"),
    "no checksum": ({"checksum": "none"}, "unchecked"),
}


@pytest.mark.parametrize(("change", "reason"), CHANGES.values(), ids=CHANGES)
def test_an_intact_part_that_says_something_else_is_a_miss_and_only_a_corrupt_one_is_moved(
    one_part: tuple[Path, PartRef], tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    """What somebody else wrote is never deleted, and a layout is never taken for another."""
    root, ref = copy(one_part[0], tmp_path / "copy"), one_part[1]
    path = path_of(root, ref)
    data = rewritten(path.read_bytes(), change=change)
    path.write_bytes(data)
    assert read(FileStore(root), [ref]) == [reason]
    aside = root / "quarantine" / ref.namespace.digest / path.name
    assert (aside if reason == "corrupt" else path).read_bytes() == data


def test_a_part_without_a_checksum_is_read_where_none_is_asked_for(tmp_path: Path) -> None:
    made = scene()
    plain = FileStore(tmp_path, checksum=False)
    assert all(plain.put(items(made.block(0))))
    assert set(read(plain, made.block(0))) == {"right"}
    checked = FileStore(tmp_path)
    assert set(read(checked, made.block(0))) == {"unchecked"}
    assert all(checked.put(items(made.block(0))))
    assert set(read(checked, made.block(0))) == set(read(plain, made.block(0))) == {"right"}
    # a checksum that is there is held against the bytes by whoever reads them
    path = files(tmp_path)[0]
    path.write_bytes(flipped(path.read_bytes(), 8 * path.stat().st_size - 1))
    assert sorted(set(read(plain, made.block(0)))) == ["corrupt", "right"]
