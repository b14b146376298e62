"""The fp8 formats of AMD's GPUs: which a target expects, and what becomes of bytes when one takes another's.

Every target stores every format, bit for bit, because kernels encode by integers, and the layout spells which one its
bytes are. What differs is which format a target's attention kernels read: that of ``Target.fp8``.
"""

import logging
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.spec import Spec
from statehal_hip.targets import FNUZ, OCP, Target

logger = logging.getLogger("statehal")

NAN = 0x80
"""NaN in the fnuz formats, which have no negative zero and no infinity; elsewhere this code is negative zero."""

FINITE = {"float8_e4m3fn": 0x7E, "float8_e5m2": 0x7B}
"""The largest finite code of the OCP formats; those above it are NaN, and in e5m2 first infinity."""

OTHER = dict(zip((*OCP, *FNUZ), (*FNUZ, *OCP), strict=True))
"""By fp8 format, that of the other family with as many mantissa bits."""


def reencoded(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, float]:
    """The same values in the other fp8 format of as many mantissa bits, and what their scale is multiplied with.

    A fnuz format has an exponent bias one higher, so that a code means half of what it means in the OCP format: codes
    stay, and scales double on the way to fnuz and halve on the way back. Nothing is rounded, subnormal values included.
    Two things change: a negative zero becomes zero, which is all that fnuz has, and a NaN any other NaN. What has no
    equal is refused:

    - to ``float8_e4m3fnuz``: nothing;
    - to ``float8_e5m2fnuz``: infinities;
    - to ``float8_e4m3fn``: the largest magnitude, codes 0x7f and 0xff;
    - to ``float8_e5m2``: the four largest magnitudes, codes from 0x7c and from 0xfc.

    Args:
        rows: of any shape, in an fp8 dtype; the device is waited for.
        dtype: the other format.

    Returns:
        The codes as ``dtype``, new, and 2.0 or 0.5: ``rows * scale`` equals ``result * (scale * factor)``. A float32
        scale below 2**-125 is subnormal when it is halved, and may lose its last bit.

    Raises:
        ArgumentError: the formats are no such pair, or a code has no equal; says which and how many.
    """
    given, wanted = (str(one).removeprefix("torch.") for one in (rows.dtype, dtype))
    if OTHER.get(given) != wanted:
        raise ArgumentError(
            f"rows of {given} as {wanted}: expected one of {', '.join(f'{a} as {b}' for a, b in OTHER.items())}"
        )
    codes, to_fnuz = rows.detach().view(torch.uint8), wanted in FNUZ
    magnitude = codes & 0x7F
    largest = FINITE[given if to_fnuz else wanted]
    nan = (magnitude > largest) & ((magnitude != 0x7C) | (given != "float8_e5m2")) if to_fnuz else codes == NAN
    lost = (magnitude > largest) & ~nan
    if bool(lost.any()):
        found = ", ".join(f"{int(code):#04x}" for code in codes[lost].unique())
        raise ArgumentError(
            f"{int(lost.sum())} of {codes.numel()} elements of {given} have no equal in {wanted}: codes {found} (fix: "
            f"dequantise, and quantise anew with another scale)"
        )
    made = codes.masked_fill(nan, NAN if to_fnuz else 0x7F)
    if to_fnuz:
        made = made.masked_fill(codes == NAN, 0)  # negative zero
    return made.view(dtype), 2.0 if to_fnuz else 0.5


def tell_foreign(spec: Spec, target: Target) -> None:
    """Log, once, that a spec's rows are in an fp8 format that is not the one which a target has instructions for.

    They are stored as the spec spells them, so that pools written elsewhere can be read here.
    """
    for dtype in dict.fromkeys(_foreign(spec, target)):
        _tell(spec.name, dtype, target)


def _foreign(spec: Spec, target: Target) -> Iterator[str]:
    for field in spec.fields():
        if target.native and field.dtype in OTHER and field.dtype not in target.fp8:
            yield field.dtype


@cache
def _tell(name: str, dtype: str, target: Target) -> None:
    native = OTHER[dtype]
    logger.warning(
        "sub-pool %r keeps %s, for which %s has no instructions: a kernel that took its bytes for %s would read every "
        "value %s (fix: dtype=%r, or kernels that decode by the view's dtype)",
        name, dtype, target.name, native, "halved" if native in FNUZ else "doubled", native,
    )  # fmt: skip
