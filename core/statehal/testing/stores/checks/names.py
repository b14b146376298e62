"""Parts that differ in namespace, key or place are different parts."""

from dataclasses import replace

from statehal.testing.stores.blocks import ATTENTION, block, found, stored
from statehal.testing.stores.store_check import StoreTarget, store_check


@store_check("names")
def check_keys_are_apart(target: StoreTarget) -> None:
    """A part of one block is never found under the key of another."""
    store = target.open()
    stored(store, *block(0))
    assert set(found(store, *block(1))) == {"absent"}
    stored(store, *block(1))
    assert set(found(store, *block(0), *block(1))) == {"right"}


@store_check("names")
def check_parts_of_a_block_are_apart(target: StoreTarget) -> None:
    """A part is never found in the place of another part of its block, though both have one size."""
    store, refs = target.open(), block(0)
    stored(store, *refs[::2])
    expected = ["right" if index % 2 == 0 else "absent" for index in range(len(refs))]
    assert found(store, *refs) == expected


@store_check("names")
def check_namespaces_are_apart(target: StoreTarget) -> None:
    """Bytes are never read under another meaning: another model, or another storage dtype of the same size."""
    store = target.open()
    named = [block(0, model="a"), block(0, model="b")]
    named += [block(0, replace(ATTENTION, dtype=dtype)) for dtype in ("float8_e4m3fn", "float8_e4m3fnuz")]
    for refs in named:
        states = found(store, *refs)
        assert set(states) == {"absent"}, f"{states} before anything was stored under {refs[0].namespace.encoded!r}"
        stored(store, *refs)
    for refs in named:
        assert set(found(store, *refs)) == {"right"}
