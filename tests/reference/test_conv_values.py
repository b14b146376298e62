"""Outputs of prefill and decode against convolution by definition in float64, for every width and dtype."""

from typing import Literal

import pytest
import torch

from reference.conv_oracle import Rows, convolve, lists, noise, rig, rounded, whole


def both(
    width: int, dtype: torch.dtype, bias: bool, activation: Literal["silu"] | None, channels: int, tokens: int
) -> tuple[torch.Tensor, Rows, Rows]:
    """Outputs, those of the definition, and the sums of the absolute terms; the last 9 tokens are decoded."""
    made = rig(width, channels, str(dtype).removeprefix("torch."))
    weight = noise(1, channels, width, dtype=dtype)
    shift = noise(2, channels, dtype=dtype) if bias else None
    x = noise(3, tokens, channels, dtype=dtype)
    made.conv.prepare(0, weight, shift, activation=activation)
    given = x.clone()
    outputs = [made.conv.prefill(0, x[:-9], torch.tensor([0, tokens - 9]), made.pick(1))]
    made.commit(1)
    for token in x[-9:]:
        outputs.append(made.conv.decode(0, token[None], made.pick(1)))
        made.commit(1)
    assert torch.equal(x, given)
    empty = [[0.0] * channels] * (width - 1)
    flat = lists(shift) if shift is not None else None
    exact = convolve(empty, lists(x), lists(weight), flat, activation == "silu")
    size = convolve(empty, lists(x.abs()), lists(weight.abs()), flat and [abs(one) for one in flat], False)
    return torch.cat(outputs), exact, size


@pytest.mark.parametrize("width", range(2, 9))
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_float32_is_the_definition_rounded(width: int, bias: bool, activation: Literal["silu"] | None) -> None:
    got, exact, size = both(width, torch.float32, bias, activation, 5, 60)
    wanted, terms = torch.tensor(exact, dtype=torch.float64), torch.tensor(size, dtype=torch.float64)
    bound = 2.0**-24 * wanted.abs() + 1e-15 * terms  # half a unit in the last place, and what float64 sums lose
    assert bool(((got.double() - wanted).abs() <= bound).all())
    assert got.abs().sum() > 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("width", [3, 4, 8])
def test_one_rounding_at_the_end(dtype: torch.dtype, width: int, activation: Literal["silu"] | None) -> None:
    got, exact, _ = both(width, dtype, True, activation, 64, 700)
    wanted = torch.tensor(rounded(exact, dtype), dtype=torch.float64)
    assert got.dtype == dtype
    assert int((got.double() != wanted).sum()) <= 1e-4 * wanted.numel()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", range(2, 9))
def test_weights_of_whole_numbers_are_exact(dtype: torch.dtype, width: int) -> None:
    made = rig(width, 7, str(dtype).removeprefix("torch."))
    weight, bias, x = whole(1, 7, width, dtype=dtype), whole(2, 7, dtype=dtype), whole(3, 20, 7, dtype=dtype)
    made.conv.prepare(0, weight, bias)
    got = made.conv.prefill(0, x, torch.tensor([0, 20]), made.pick(2))
    exact = convolve([[0.0] * 7] * (width - 1), lists(x), lists(weight), lists(bias), False)
    assert lists(got) == rounded(exact, dtype)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_of_another_dtype_are_used_as_they_are(weight_dtype: torch.dtype) -> None:
    made = rig(4, 3, "bfloat16")
    weight, bias = noise(1, 3, 4, dtype=weight_dtype), noise(2, 3, dtype=torch.float32)
    x = noise(3, 300, 3, dtype=torch.bfloat16)
    made.conv.prepare(0, weight, bias)
    got = made.conv.prefill(0, x, torch.tensor([0, 300]), made.pick(2))
    exact = convolve([[0.0] * 3] * 3, lists(x), lists(weight), lists(bias), False)
    assert lists(got) == rounded(exact, torch.bfloat16)


@pytest.mark.parametrize("method", ["prefill", "decode"])
def test_x_may_be_strided_and_out_may_be_x(method: str) -> None:
    made = rig(3, 4, "float32")
    packed = whole(5, 5, 12)
    x = packed[:, 4:8]

    def call(given: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        made.conv.zero_slots(made.slots)
        if method == "decode":
            return made.conv.decode(0, given, made.pick(1, 2, 3, 4, 5), out=out)
        return made.conv.prefill(0, given, torch.tensor([0, 2, 5]), made.pick(1, 2), out=out)

    wanted = call(x.clone(), None)
    state = made.conv.read_state(made.slots)
    target = torch.full((5, 9), 7.0)
    assert call(x, target[:, 2:6]).data_ptr() == target[:, 2:6].data_ptr()
    assert torch.equal(target[:, 2:6], wanted)
    assert bool((target[:, [0, 1, 6, 7, 8]] == 7).all())
    rest = packed.clone()
    assert torch.equal(call(x, x), wanted)
    assert torch.equal(packed[:, 4:8], wanted)
    assert torch.equal(packed[:, :4], rest[:, :4])
    assert torch.equal(made.conv.read_state(made.slots), state)
