"""What is stored comes back, until it is deleted."""

from statehal.testing.stores.blocks import SPECS, block, found, payload, stored
from statehal.testing.stores.store_check import StoreTarget, store_check


@store_check("contents")
def check_parts_come_back_as_they_were_stored(target: StoreTarget) -> None:
    """A part that was stored is read back byte for byte, whatever kind of state it is of."""
    store = target.open()
    refs = [ref for spec in SPECS for number in range(2) for ref in block(number, spec)]
    stored(store, *refs)
    states = found(store, *refs)
    assert states == ["right"] * len(refs), dict(zip(map(str, refs), states, strict=True))
    assert all(store.exists(refs)), "exists denies a part that get finds"


@store_check("contents")
def check_another_process_finds_them(target: StoreTarget) -> None:
    """After put every process finds the part."""
    refs = block(0)
    stored(target.open(), *refs)
    other = target.open()
    assert all(other.exists(refs))
    assert found(other, *refs) == ["right"] * len(refs)


@store_check("contents")
def check_a_buffer_is_not_kept(target: StoreTarget) -> None:
    """Put keeps none of the buffers: they may be changed as soon as it has answered."""
    store, (ref, *_) = target.open(), block(0)
    buffer = bytearray(payload(ref))
    assert all(store.put([(ref, buffer)]))
    buffer[:] = bytes(len(buffer))
    assert found(store, ref) == ["right"]


@store_check("contents")
def check_what_is_there_is_not_written_again(target: StoreTarget) -> None:
    """A part that is already there is not written again, and the outcome is done."""
    store, (ref, *_) = target.open(), block(0)
    stored(store, ref)
    other = bytes(ref.part.nbytes)
    assert all(store.put([(ref, other)])), "storing again is refused"
    assert found(store, ref) == ["right"], "the second payload took the place of the first"


@store_check("contents")
def check_deleted_parts_are_gone(target: StoreTarget) -> None:
    """A deleted part is absent for everybody, can be stored again, and no other part goes with it."""
    store, refs = target.open(), block(0)
    stored(store, *refs)
    assert all(store.delete(refs[:1]))
    rest = ["right"] * (len(refs) - 1)
    assert found(store, *refs) == ["absent", *rest]
    assert found(target.open(), *refs) == ["absent", *rest]
    assert [str(one.reason) for one in store.delete(refs[:1])] == ["absent"], "it can be deleted twice"
    stored(store, refs[0])
    assert found(store, *refs) == ["right", *rest]


@store_check("contents")
def check_payloads_are_read_into_the_given_memory_and_nowhere_else(target: StoreTarget) -> None:
    """Get writes the payload into the buffer, to its last byte, and nothing beside it."""
    store, (ref, *_) = target.open(), block(0)
    stored(store, ref)
    size = ref.part.nbytes
    memory = bytearray(b"\xa5" * (size + 128))
    assert all(store.get([(ref, memoryview(memory)[64 : 64 + size])]))
    assert memory[64 : 64 + size] == payload(ref)
    assert memory[:64] == memory[64 + size :] == b"\xa5" * 64, "bytes beside the buffer were written"
