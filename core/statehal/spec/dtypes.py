"""Storage dtypes by name, so that specs, layouts and plans need no torch."""

from collections.abc import Mapping
from types import MappingProxyType

from statehal.errors import SpecError

# name -> (bytes an element, the byte that fills an element with NaN; 0 where the dtype has no NaN)
_TABLE: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "float32": (4, 0xFF),
        "float16": (2, 0xFF),
        "bfloat16": (2, 0xFF),
        "float8_e4m3fn": (1, 0xFF),
        "float8_e4m3fnuz": (1, 0x80),
        "float8_e5m2": (1, 0xFF),
        "float8_e5m2fnuz": (1, 0x80),
        "int8": (1, 0),
        "uint8": (1, 0),
        "int32": (4, 0),
        "int64": (8, 0),
    }
)

DTYPES = tuple(_TABLE)
"""Names of the dtypes that state may be stored in."""


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype given as ``"bfloat16"`` or ``torch.bfloat16``.

    Raises:
        SpecError: state cannot be stored in that dtype.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _TABLE:
        raise SpecError(f"dtype {name!r} cannot hold state: expected one of {', '.join(DTYPES)}")
    return name


def itemsize(dtype: str) -> int:
    """Bytes an element of the dtype takes."""
    return _TABLE[dtype_name(dtype)][0]


def nan_byte(dtype: str) -> int:
    """The byte that, repeated, makes an element NaN; 0 for integer dtypes (``fnuz`` forms have one NaN, 0x80)."""
    return _TABLE[dtype_name(dtype)][1]
