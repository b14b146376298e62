"""A part in memory is what other readers of the format read, and reads back whatever is fetched of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from statehal.portability.store import Outcome, Reason
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.part_memory import StoredBytes, check_part, encode, write_header
from store.scene import flipped, parse, scene


@settings(max_examples=25, deadline=None, derandomize=True)
@given(tokens=st.integers(1, 6000), seed=st.binary(min_size=1, max_size=40), margin=st.integers(0, 100))
def test_an_encoded_part_is_one_to_a_reader_of_its_own(tokens: int, seed: bytes, margin: int) -> None:
    """Of sizes below and above what is hashed at a time; nothing beside its place is written."""
    ref = scene(object_tokens=tokens).block(0)[0]
    form = PartFormat(ref.namespace, ref.part, checked=True)
    payload = (seed * (ref.part.nbytes // len(seed) + 1))[: ref.part.nbytes]
    memory = bytearray(b"\xa5" * (form.file_bytes + 2 * margin))
    encode(form, ref.key, memoryview(payload), memoryview(memory)[margin : margin + form.file_bytes])
    assert memory[:margin] == memory[len(memory) - margin :] == b"\xa5" * margin
    metadata, _, body = parse(bytes(memory[margin : margin + form.file_bytes]))  # which compares the checksum
    assert body == payload
    assert (metadata["key"], metadata["part"]) == (ref.key, ref.part.id)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tokens=st.integers(1, 40), seed=st.binary(min_size=1, max_size=40), where=st.floats(0, 1, exclude_max=True))
def test_a_part_that_is_made_where_it_lies_is_the_same_and_no_flipped_bit_of_it_is_right(
    tokens: int, seed: bytes, where: float
) -> None:
    ref = scene(object_tokens=tokens).block(0)[0]
    form = PartFormat(ref.namespace, ref.part, checked=True)
    payload = (seed * (ref.part.nbytes // len(seed) + 1))[: ref.part.nbytes]
    expected, memory = bytearray(form.file_bytes), bytearray(b"\xa5" * form.head_bytes + payload)
    encode(form, ref.key, memoryview(payload), memoryview(expected))
    write_header(form, ref.key, memoryview(memory))
    assert memory == expected
    assert check_part(memoryview(memory), form, ref.key) == Outcome(True)
    assert memory[form.head_bytes :] == payload
    damaged = bytearray(flipped(bytes(expected), int(where * 8 * len(expected))))
    found = check_part(memoryview(damaged), form, ref.key)
    assert found is None or found.reason is Reason.CORRUPT
    assert check_part(memoryview(bytearray(expected)), form, "0" * 64) is None, "the header is another block's"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    data=st.binary(max_size=64),
    prefix=st.integers(0, 64),
    offset=st.integers(0, 70),
    lengths=st.lists(st.integers(0, 20), max_size=4),
)
def test_what_is_here_and_what_is_fetched_are_one_file(
    data: bytes, prefix: int, offset: int, lengths: list[int]
) -> None:
    """Reads as a file of the same bytes does: into views one after another, fewer where the bytes end."""
    views = [memoryview(bytearray(b"\xa5" * length)) for length in lengths]
    got = StoredBytes(data[:prefix], lambda start, stop: data[start:stop])(views, offset)
    expected = data[offset : offset + sum(lengths)]
    assert got == len(expected)
    assert b"".join(map(bytes, views)) == expected + b"\xa5" * (sum(lengths) - got)
