"""Rows are what Triton's own JIT would compile for the arguments of a launch."""

import compile_faults as planted
import pytest
import torch

from statehal_triton_ops.compile.rows import rows, specialise
from statehal_triton_ops.compile.scenario import Scenario, tensor
from statehal_triton_ops.kernels.places import Field
from statehal_triton_ops.launch import Launch, launch, recorded


def specialised(x: torch.Tensor, stride: int = 128, family: str = "cuda"):  # type: ignore[no-untyped-def]
    arguments = x, tensor(64, dtype="int32"), tensor(64, 128), stride, 128
    return specialise(Launch(planted.sound, (4,), arguments, {"D": 128, "BLOCK": 16}), family)


def test_integers_and_pointers_are_specialised_as_the_jit_does() -> None:
    made = specialised(tensor(4096))
    assert made.signature == {
        "x_ptr": "*bf16", "ids_ptr": "*i32", "out_ptr": "*bf16", "s_x": "i32", "s_out": "i32",
        "D": "constexpr", "BLOCK": "constexpr",
    }  # fmt: skip
    assert made.constants == {(5,): 128, (6,): 16}
    assert made.attributes[0,] == [["tt.divisibility", 16]]
    assert made.attributes[3,] == [["tt.divisibility", 16]]
    assert specialised(tensor(4096), stride=129).attributes.get((3,), []) == []
    assert specialised(tensor(4096), stride=1).constants[3,] == 1
    assert specialised(tensor(4096), stride=1 << 32).signature["s_x"] == "i64"
    assert specialised(tensor(4096)[1:]).attributes.get((0,), []) == []


def test_a_tensor_of_more_than_2_gib_has_no_short_offsets_on_amd() -> None:
    small, large = (specialised(tensor(size), family="hip64").attributes[0,] for size in (1 << 20, 1 << 31))
    assert ["tt.pointer_range", 32] in small
    assert ["tt.pointer_range", 32] not in large


def test_named_tuples_are_specialised_inside() -> None:
    import triton

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(field) -> None:  # type: ignore[no-untyped-def]
        pass

    field = Field(tensor(4096), 1024, 0, 16, 1, 24, 1, 0, 16, 1 << 33)
    made = specialise(Launch(kernel, (1,), (field,)), "cuda")
    assert tuple(made.signature["field"]) == (
        "*bf16", "i32", "i32", "i32", "constexpr", "i32", "constexpr", "i32", "i32", "i64",
    )  # fmt: skip
    assert made.constants == {(0, 4): 1, (0, 6): 1}


def test_equal_launches_are_one_row() -> None:
    twice = [planted.scenario(planted.sound, name, quick=name == "b") for name in ("a", "b")]
    (row,) = rows(twice, ["cuda"])
    assert (row.kernel, row.scenarios, row.quick) == ("compile_faults.sound", ["a", "b"], True)
    other = planted.scenario(planted.sound, "c", num_warps=8)
    assert len(rows([*twice, other], ["cuda", "hip64", "hip32"])) == 4


def test_a_scenario_that_launches_nothing_makes_no_row() -> None:
    assert rows([Scenario("nothing", lambda backend: None)], ["cuda"]) == []


def test_recorded_launches_do_not_run() -> None:
    with recorded() as launches:
        launch(planted.sound, (4,), tensor(64), num_warps=2, D=128)
        launch(planted.sound, (0,), tensor(64))
    assert [(one.grid, one.num_warps, one.constants) for one in launches] == [((4,), 2, {"D": 128})]


@pytest.mark.parametrize("family", ["cuda", "hip64", "hip32"])
def test_fusion_is_off_in_what_is_compiled(family: str) -> None:
    from statehal_triton_ops.compile.build import build, own_cache
    from statehal_triton_ops.compile.targets import TARGETS

    target = next(target for target in TARGETS.values() if target.family == family)
    with own_cache():
        text = build(specialised(tensor(4096), family=family), target).assembly
    products = ("mul.f32", "mul.rn.f32") if family == "cuda" else ("v_mul_f32", "v_pk_mul_f32", "v_dual_mul_f32")
    assert any(product in text for product in products)
