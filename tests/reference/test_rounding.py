"""``round_once``: the nearest value of a dtype, where two roundings in a row would miss it."""

from math import copysign, inf, isinf, isnan, nan, nextafter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.rounding_oracle import MIDDLES, VALUES, nearest
from statehal.reference.rounding import round_once

DTYPES = tuple(VALUES)


def check(values: list[float], dtype: torch.dtype) -> None:
    got = round_once(torch.tensor(values, dtype=torch.float64), dtype)
    expected = torch.tensor([nearest(value, dtype) for value in values], dtype=torch.float64).to(dtype)
    assert got.dtype == dtype
    different = got.view(torch.int16) != expected.view(torch.int16)
    different &= ~(got.isnan() & expected.isnan())
    assert [values[n] for n in different.nonzero().flatten().tolist()] == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value_and_every_middle_and_their_neighbours(dtype: torch.dtype) -> None:
    points = [*VALUES[dtype], *MIDDLES[dtype]]
    near = [nextafter(point, way) for point in points for way in (-inf, inf)]
    check([sign * point for sign in (1.0, -1.0) for point in (*points, *near)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_roundings_would_miss_half_of_the_middles(dtype: torch.dtype) -> None:
    past = torch.tensor([nextafter(middle, inf) for middle in MIDDLES[dtype][1:-1]], dtype=torch.float64)
    assert (round_once(past, dtype) != past.to(torch.float32).to(dtype)).sum() > len(past) * 0.4


@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None)
@given(st.lists(st.floats(width=64), min_size=1, max_size=40))
def test_any_float64(dtype: torch.dtype, values: list[float]) -> None:
    check(values, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 0x7BFF), st.floats(-1e-6, 1e-6)), min_size=1, max_size=40))
def test_close_to_a_middle(dtype: torch.dtype, near: list[tuple[int, float]]) -> None:
    check([MIDDLES[dtype][at] * (1 + offset) for at, offset in near], dtype)


EXTREMES = [
    *(0.0, inf, nan, 5e-324, 2.0**-150, 2.0**-149, 2.0**-133, 2.0**-134, nextafter(2.0**-134, 1), 2.0**-24, 2.0**-25),
    *(3.4e38, 3.4028234663852886e38, 3.4028235677973366e38, 3.5e38, 65504.0, 65519.99, 65520.0, 1.7e308),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ends_of_the_range(dtype: torch.dtype) -> None:
    check([*EXTREMES, *(-value for value in EXTREMES)], dtype)


@settings(deadline=None)
@given(st.lists(st.floats(width=64), max_size=40))
def test_float32_is_one_rounding_already(values: list[float]) -> None:
    got = round_once(torch.tensor(values, dtype=torch.float64), torch.float32).tolist()
    for one, value in zip(got, values, strict=True):
        expected = nearest(value, torch.float32)
        assert (isnan(one) and isnan(value)) or (one == expected and copysign(1, one) == copysign(1, expected))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32, torch.float64])
def test_shapes_strides_and_graphs(dtype: torch.dtype) -> None:
    wide = torch.linspace(-3, 3, 24, dtype=torch.float64).view(2, 3, 4).requires_grad_()
    before = wide.detach().clone()
    got = round_once(wide.transpose(0, 2)[::2], dtype)
    assert got.shape == (2, 3, 2)
    assert not got.requires_grad
    assert torch.equal(got, round_once(before.transpose(0, 2)[::2].contiguous(), dtype))
    assert torch.equal(wide.detach(), before)
    assert round_once(torch.empty(0, 3, dtype=torch.float64), dtype).shape == (0, 3)
    assert not any(isinf(one) for one in got.flatten().tolist())
