"""Pools and bindings made in inference mode are usable outside it, and a binding can be kept in a set."""

import torch

import statehal
from statehal.pool import StatePool


def make() -> tuple[statehal.Binding, StatePool]:
    hal = statehal.bind("cpu")
    specs = [
        statehal.Attention("moving", (0,), 1, 4, "float32"),
        statehal.Attention("direct", (1,), 1, 4, "float32", ids="direct"),
    ]
    return hal, hal.allocate(hal.plan(specs, tokens=64, page_size=4))


def test_what_was_made_in_inference_mode_is_written_outside_it() -> None:
    with torch.inference_mode():
        hal, pool = make()
        writer = hal.kv(pool["moving"])
        pages = pool["moving"].alloc(5)
    rows = torch.arange(20.0).reshape(5, 1, 4)
    ids = pool["moving"].kernel_ids(pages.token_ids())
    writer.write(0, ids, rows.clone().requires_grad_(), rows)
    assert torch.equal(pool["moving"].view("k", 0)[ids.tensor], rows)
    assert not pool["moving"].view("k", 0).requires_grad


def test_a_direct_id_out_of_range_never_wraps_around_to_a_row() -> None:
    _, pool = make()
    sub = pool["direct"]
    raw = torch.tensor([2**31 - 1, 2**30, sub.layout.num_pages * 4], dtype=torch.int32)
    ids = sub.kernel_ids(sub.space("virtual", "tokens").assume(raw))
    assert bool((ids.tensor >= sub.view("k", 1).shape[0]).all())


def test_a_binding_is_hashable() -> None:
    hal, _ = make()
    assert {hal: 1}[hal] == 1
