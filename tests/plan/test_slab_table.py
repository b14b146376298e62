"""Slabs of published models: no larger than the design says, and no sub-pool wastes more than the limit."""

from math import lcm, prod

import pytest

from plan.models import (
    GEMMA3_27B,
    GPT_OSS_20B,
    KIMI_LINEAR_TP4,
    MAMBA2_2_7B,
    MIB,
    MIMO,
    QWEN3_NEXT_TP4,
    SHARED_ATTENTION,
)
from statehal.pool import PoolPlan, plan
from statehal.pool.slab_search import PageSize, smallest_slab
from statehal.spec import Attention, ConvRecurrent, Latent, Spec


def payload(spec: Spec, page_size: int) -> int:
    """Bytes of one page that hold data."""
    layers = len(spec.layers)
    if isinstance(spec, Attention):
        return layers * page_size * spec.kv_heads * (spec.head_dim + (spec.v_head_dim or spec.head_dim)) * 2
    if isinstance(spec, Latent):
        return layers * page_size * (spec.kv_lora_rank + spec.qk_rope_head_dim) * 2
    assert isinstance(spec, ConvRecurrent)
    return layers * (3 * spec.channels * 2 + prod(spec.state or ()) * 4) + 4


def check_plan(made: PoolPlan, specs: list[Spec], page_size: int, waste_limit: float = 0.02) -> None:
    """Everything that a plan of one shared region promises, from the specs alone."""
    (region,) = made.regions
    assert region.members == tuple(spec.name for spec in specs)
    for spec in specs:
        sub = made.subpools[spec.name]
        layout = sub.layout
        held = payload(spec, page_size if spec.kind == "tokens" else 1)
        assert layout.payload_bytes == held
        assert layout.page_bytes * sub.pages_per_slab == region.slab_bytes
        assert layout.num_pages == sub.pages_per_slab * region.num_slabs
        assert sub.max_pages == sub.pages_per_slab * (region.num_slabs - 1)
        for field in layout.fields:
            for kind in layout.kinds(field.name):
                step = {
                    "row": field.row_bytes,
                    "block": field.row_bytes * layout.page_size,
                    "page": field.itemsize,
                }[kind]
                assert layout.page_bytes % step == 0
        # what the forms in use cost is the layout's own; the limit holds for what division loses
        steps = lcm(*(field.row_bytes for field in layout.fields if "row" in layout.kinds(field.name)), 4)
        tight = -(-held // steps) * steps
        assert 0 <= layout.page_bytes - tight <= waste_limit * layout.page_bytes
        assert sub.waste == pytest.approx((layout.page_bytes - held) / layout.page_bytes)
    assert made.total_bytes == region.slab_bytes * region.num_slabs <= made.requested_bytes
    assert made.unused_bytes == made.requested_bytes - made.total_bytes < region.slab_bytes


@pytest.mark.parametrize(
    ("specs", "mib", "waste"),
    [
        (GPT_OSS_20B, 0.4, 0.0),
        (GEMMA3_27B, 26.3, 0.01),
        (QWEN3_NEXT_TP4, 37, 0.003),
        (KIMI_LINEAR_TP4, 10.5, 0.02),
        (MIMO, 3.14, 0.005),
    ],
    ids=["gpt-oss", "gemma-3", "qwen3-next", "kimi-linear", "mimo-192-128"],
)
def test_the_slab_table(specs: list[Spec], mib: float, waste: float) -> None:
    made = plan(specs, total_bytes=8 * 1024 * MIB, page_size=16)
    check_plan(made, specs, 16)
    assert made.regions[0].slab_bytes <= mib * MIB
    assert max(sub.waste for sub in made.subpools.values()) <= waste
    largest = max(payload(spec, 16 if spec.kind == "tokens" else 1) for spec in specs)
    assert made.regions[0].slab_bytes >= largest


@pytest.mark.parametrize("page_size", [1, 3, 16, 64, 128])
@pytest.mark.parametrize(
    "specs",
    [GPT_OSS_20B, GEMMA3_27B, QWEN3_NEXT_TP4, KIMI_LINEAR_TP4, MIMO],
    ids=["gpt-oss", "gemma-3", "qwen3-next", "kimi-linear", "mimo"],
)
def test_other_page_sizes(specs: list[Spec], page_size: int) -> None:
    check_plan(plan(specs, total_bytes=16 * 1024 * MIB, page_size=page_size), specs, page_size)


def test_mamba2_beside_attention_needs_neither_10_gib_nor_much_waste() -> None:
    specs: list[Spec] = [SHARED_ATTENTION, MAMBA2_2_7B]
    made = plan(specs, total_bytes=8 * 1024 * MIB, page_size=16)
    check_plan(made, specs, 16)
    assert made.regions[0].slab_bytes < 1.01 * payload(MAMBA2_2_7B, 1)
    both = lcm(*(sub.layout.payload_bytes for sub in made.subpools.values()))
    assert both > 10 * 1024 * MIB


def test_conv_and_recurrent_state_of_mamba2_as_two_kinds_of_pages() -> None:
    """The row of the table: windows of 63/32 MiB beside states of 160 MiB, which have 9.8 GiB in common."""
    conv, state = 64 * 3 * 5376 * 2, 64 * 80 * 64 * 128 * 4
    assert lcm(conv, state) > 9.8 * 1024 * MIB
    slab = smallest_slab([PageSize("conv", conv, 2), PageSize("state", state, 4)], 0.02)
    assert slab == 160 * MIB
    assert 1 - conv * (slab // conv) / slab < 0.02


def test_mamba2_alone_has_its_bytes_to_itself() -> None:
    made = plan([MAMBA2_2_7B], total_bytes=8 * 1024 * MIB)
    (region,) = made.regions
    assert not region.shared
    assert made.subpools["ssm"].layout.page_bytes == payload(MAMBA2_2_7B, 1)
    assert made.subpools["ssm"].max_pages == 8 * 1024 * MIB // payload(MAMBA2_2_7B, 1) - 1
