"""Where NVIDIA GPUs have an instruction for fp8, it is used, and the integer arithmetic is gone."""

import pytest

from statehal_triton_ops.compile.build import build, own_cache
from statehal_triton_ops.compile.rows import rows
from statehal_triton_ops.compile.scenarios import kv
from statehal_triton_ops.compile.targets import TARGETS


@pytest.mark.parametrize(
    ("stored", "target", "instruction"),
    [
        ("float8_e4m3fn", "sm90", "cvt.rn.satfinite.e4m3x2.f32"),
        ("float8_e5m2", "sm120", "cvt.rn.satfinite.e5m2x2.f32"),
        ("float8_e4m3fn", "sm80", None),
        ("float8_e4m3fnuz", "sm90", None),
    ],
)
def test_fp8_takes_one_instruction_for_two_values(stored: str, target: str, instruction: str | None) -> None:
    chip = TARGETS[target]
    scenario = next(one for one in kv.scenarios() if one.name.startswith(f"kv.write {stored} of bfloat16 8x"))
    row = rows([scenario], [chip.family])[0]
    with own_cache():
        assembly = build(row.specialised, chip).assembly
    if instruction is None:
        assert "satfinite" not in assembly
    else:
        assert (
            assembly.count(instruction) == 2 * 2048 // (32 * row.specialised.num_warps) // 2
        )  # K and V, two values each
