"""A stored part that is not what it should be is a miss with a reason, and nothing of anybody's is lost."""

from statehal.testing.stores.blocks import block, found, payload, stored
from statehal.testing.stores.store_check import StoreTarget, store_check


@store_check("damage", "raw")
def check_a_flipped_bit_is_a_miss(target: StoreTarget) -> None:
    """A bit that is flipped anywhere in a part, from the header's length to the last byte, is a miss with a reason."""
    refs = block(0)
    stored(target.open(), *refs)
    data = target.raw(refs[0])
    places = {*range(0, 8 * len(data), 67), *range(64), *range(8 * len(data) - 8, 8 * len(data))}
    for bit in sorted(places):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        target.damage(refs[0], bytes(changed))
        (first,) = found(target.open(), refs[0])
        assert first in ("corrupt", "newer_format"), (
            f"with bit {bit} of {8 * len(data)} flipped the part reads {first!r}"
        )
    others = found(target.open(), *refs[1:])
    assert others == ["right"] * len(others), f"a damaged part harms others: {others}"
    target.damage(refs[0], data)
    assert found(target.open(), refs[0]) == ["right"]


@store_check("damage", "raw")
def check_a_part_of_another_length_is_a_miss(target: StoreTarget) -> None:
    """A part without bytes, a part that ends too early and one with a tail are misses, also for exists."""
    (ref, *_) = block(0)
    stored(target.open(), ref)
    data = target.raw(ref)
    for changed in (b"", data[:7], data[:100], data[: -ref.part.nbytes], data[:-1], data + b"\0", data + data):
        target.damage(ref, changed)
        assert not target.open().exists([ref])[0], f"exists says yes to {len(changed)} bytes of {len(data)}"
        state = found(target.open(), ref)
        target.damage(ref, changed)
        assert state == ["corrupt"], f"{len(changed)} bytes of {len(data)} read {state}"


@store_check("damage", "raw")
def check_a_part_in_the_place_of_another_is_a_miss(target: StoreTarget) -> None:
    """An intact part under the name of another block, or of another part of one size, is a miss, and is kept."""
    here, (there, *_) = block(0), block(1)
    stored(target.open(), *here, there)
    for wrong in (there, here[1]):
        data = target.raw(wrong)
        target.damage(here[0], data)
        state = found(target.open(), here[0])
        assert state == ["misplaced"], f"{wrong} in the place of {here[0]} reads {state}"
        assert target.raw(here[0]) == data, "a reader removed what is intact"


@store_check("damage", "raw")
def check_a_later_version_is_a_miss_and_stays(target: StoreTarget) -> None:
    """A part that a later version of the format wrote is a miss, and neither a reader nor a writer takes its place."""
    (ref, *_) = block(0)
    stored(target.open(), ref)
    later = target.raw(ref).replace(b'"format_version":"1"', b'"format_version":"2"')
    target.damage(ref, later)
    store = target.open()
    assert found(store, ref) == ["newer_format"]
    (outcome,) = store.put([(ref, payload(ref))])
    assert str(outcome.reason) == "newer_format", f"put over a later version: {outcome}"
    assert target.raw(ref) == later, "a later version's part is gone"


@store_check("damage", "raw")
def check_a_damaged_part_can_be_stored_again(target: StoreTarget) -> None:
    """After a corrupt or misplaced part was missed, put stores the right one."""
    (ref, *_), (other, *_) = block(0), block(1)
    stored(target.open(), ref, other)
    data = target.raw(ref)
    for bad in (data[:-1] + bytes([data[-1] ^ 1]), b"", target.raw(other)):
        target.damage(ref, bad)
        store = target.open()
        assert found(store, ref) != ["right"]
        stored(store, ref)
        assert found(target.open(), ref) == ["right"]
