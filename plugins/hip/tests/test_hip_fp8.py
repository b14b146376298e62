"""Which fp8 format a target expects; rows of one family as rows of the other, held against the formats' definitions."""

import logging
from math import isinf, isnan, nan

import pytest
import torch

from statehal.errors import ArgumentError
from statehal.spec import Attention
from statehal_hip.fp8 import _tell, reencoded, tell_foreign
from statehal_hip.targets import TARGETS

FORMATS = {
    # mantissa bits, exponent bias, whether code 0x80 is NaN, the first code that is not finite, whether it is infinite
    "float8_e4m3fn": (3, 7, False, 0x7F, False),
    "float8_e4m3fnuz": (3, 8, True, 0x80, False),
    "float8_e5m2": (2, 15, False, 0x7C, True),
    "float8_e5m2fnuz": (2, 16, True, 0x80, False),
}
PAIRS = [
    ("float8_e4m3fn", "float8_e4m3fnuz"),
    ("float8_e5m2", "float8_e5m2fnuz"),
    ("float8_e4m3fnuz", "float8_e4m3fn"),
    ("float8_e5m2fnuz", "float8_e5m2"),
]
LOST = {"float8_e4m3fnuz": [], "float8_e5m2fnuz": [0x7C, 0xFC], "float8_e4m3fn": [0x7F, 0xFF]}
LOST["float8_e5m2"] = [*range(0x7C, 0x80), *range(0xFC, 0x100)]
"""By the format that is wanted: the codes that have no equal."""


def meaning(name: str, code: int) -> float:
    """The number of a code: sign, exponent and mantissa by hand."""
    mantissa, bias, one_nan, finite, infinite = FORMATS[name]
    if one_nan and code == 0x80:
        return nan
    magnitude, sign = code & 0x7F, -1 if code & 0x80 else 1
    if not one_nan and magnitude >= finite:
        return sign * float("inf") if infinite and magnitude == finite else nan
    exponent, fraction = magnitude >> mantissa, magnitude % (1 << mantissa)
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + fraction / (1 << mantissa)) * 2.0 ** (exponent - bias)


def rows(name: str, codes: list[int]) -> torch.Tensor:
    return torch.tensor(codes, dtype=torch.uint8).view(getattr(torch, name))


@pytest.mark.parametrize("name", FORMATS)
def test_the_definitions_are_those_of_torch(name: str) -> None:
    held = rows(name, list(range(256))).float().tolist()
    for code, value in enumerate(held):
        assert value == meaning(name, code) or (isnan(value) and isnan(meaning(name, code))), hex(code)


@pytest.mark.parametrize(("given", "wanted"), PAIRS)
def test_every_code_has_its_equal_or_is_refused(given: str, wanted: str) -> None:
    dtype, lost = getattr(torch, wanted), []
    for code in range(256):
        before = meaning(given, code)
        try:
            made, factor = reencoded(rows(given, [code]), dtype)
        except ArgumentError:
            lost.append(code)
            # and it is true: no code of the other format means as much, at the scale that all others need
            due = before / (2.0 if wanted.endswith("fnuz") else 0.5)
            assert isinf(before) or due not in [meaning(wanted, other) for other in range(256)]
            continue
        (found,) = made.view(torch.uint8).tolist()
        after = meaning(wanted, found)
        assert made.dtype == dtype
        assert (isnan(before) and isnan(after)) or before == after * factor, hex(code)
        if found != code:  # a negative zero, or a NaN
            assert before == 0 or isnan(before)
    assert lost == LOST[wanted]


@pytest.mark.parametrize(("given", "wanted"), PAIRS)
def test_rows_times_scale_are_kept_and_the_given_ones_are_not_touched(given: str, wanted: str) -> None:
    codes = [code for code in range(256) if code not in LOST[wanted] and not isnan(meaning(given, code))]
    held = rows(given, codes[len(codes) % 2 :]).reshape(2, -1)[:, ::2]
    before = held.clone().view(torch.uint8)
    made, factor = reencoded(held, getattr(torch, wanted))
    scale = 0.37
    assert made.shape == held.shape
    assert torch.equal(made.double() * (scale * factor), held.double() * scale)
    assert torch.equal(held.view(torch.uint8), before)


def test_what_is_refused_is_named() -> None:
    wanted = (
        r"^2 of 3 elements of float8_e4m3fnuz have no equal in float8_e4m3fn: codes 0x7f, 0xff \(fix: dequantise, and "
        r"quantise anew with another scale\)$"
    )
    with pytest.raises(ArgumentError, match=wanted):
        reencoded(rows("float8_e4m3fnuz", [0x7F, 1, 0xFF]), torch.float8_e4m3fn)
    for other in (torch.float8_e5m2fnuz, torch.float8_e4m3fn, torch.int8):
        with pytest.raises(ArgumentError, match=r"^rows of float8_e4m3fn as .*: expected one of float8_e4m3fn as "):
            reencoded(rows("float8_e4m3fn", [1]), other)


@pytest.mark.parametrize(
    ("target", "dtype", "text"),
    [
        ("gfx942", "float8_e4m3fn", "for float8_e4m3fnuz would read every value halved (fix: dtype='float8_e4m3fnuz'"),
        ("gfx950", "float8_e5m2fnuz", "for float8_e5m2 would read every value doubled (fix: dtype='float8_e5m2'"),
        ("gfx942", "float8_e5m2fnuz", ""),
        ("gfx1201", "float8_e4m3fn", ""),
        ("gfx90a", "float8_e4m3fn", ""),
        ("gfx1100", "float8_e4m3fnuz", ""),
        ("gfx942", "int8", ""),
    ],
)
def test_a_format_that_the_target_has_no_instructions_for_is_told_once(
    target: str, dtype: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    _tell.cache_clear()
    with caplog.at_level(logging.WARNING, "statehal"):
        for _ in range(2):
            tell_foreign(Attention("full", (0,), 2, 64, dtype), TARGETS[target])
    assert len(caplog.messages) == bool(text)
    for message in caplog.messages:
        assert message.startswith(
            f"sub-pool 'full' keeps {dtype}, for which {target} has no instructions: a kernel that "
        )
        assert text in message
