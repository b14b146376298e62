"""Everything that is measured of one compiled kernel."""

import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from statehal_triton_ops.compile.accesses import Move, moves
from statehal_triton_ops.compile.arithmetic import arithmetic
from statehal_triton_ops.compile.build import Compiled
from statehal_triton_ops.compile.instructions import accesses
from statehal_triton_ops.compile.resources import resources
from statehal_triton_ops.compile.targets import Target

# PTX and AMD's assembly for products in a 16-bit floating type; v_fma_mix widens its operands first.
_HALF_PRODUCTS = re.compile(
    r"\b(?:(?:mul|fma|mad)(?:\.\w+)*\.b?f16(?:x2)?\b|v_(?:pk_)?(?:mul|fma|mac|fmac|mad)_b?f16\w*)"
)
_POINTER = re.compile(r"\b(?:ld|st|atom|red)\.global[\w.:]*\s[^;]*?\[ *%(rd?)\d+")


@dataclass(frozen=True)
class Measures:
    """What one kernel is for one target.

    Attributes:
        registers, scalar_registers, spills, scalar_spills, scratch_bytes, shared_bytes, occupancy: as of ``Resources``.
        loads, stores: how many instructions access so many bytes of global memory.
        bulk_width: bytes of the narrowest access of a tensor of which each thread has 8 bytes or more; 0: no such one.
        narrow_bytes: of a program, that move in accesses under 8 bytes.
        narrow_share: the same, of all bytes that a program moves.
        half_products: instructions and operations that multiply in bfloat16 or float16.
        word_products: 32-bit products that an address is made of.
        address_bits: of the narrowest global address; AMD's buffer instructions, whose offsets the compiler proved to
            fit, count by the base that they have.
        places: of ``bulk_width``, ``narrow_share``, ``half_products`` and ``word_products``: where in the source.
    """

    registers: int
    scalar_registers: int
    spills: int
    scalar_spills: int
    scratch_bytes: int
    shared_bytes: int
    occupancy: float
    loads: dict[int, int]
    stores: dict[int, int]
    bulk_width: int
    narrow_bytes: int
    narrow_share: float
    half_products: int
    word_products: int
    address_bits: int
    places: dict[str, list[str]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        made = asdict(self)
        made["occupancy"], made["narrow_share"] = round(self.occupancy, 3), round(self.narrow_share, 4)
        return made


def measure(compiled: Compiled, target: Target) -> Measures:
    """Read what was compiled."""
    used = resources(compiled, target)
    moved = moves(compiled)
    counts = {"load": Counter[int](), "store": Counter[int]()}
    for access in accesses(compiled.llir):
        counts[access.kind][access.width] += 1
    bulk = [move for move in moved if move.bulk and move.widths]
    narrow = [move for move in moved if move.narrow]
    found = arithmetic(compiled.ttir)
    places = {
        "bulk_width": _where(move for move in bulk if move.narrow),
        "narrow_share": _where(narrow),
        "half_products": found.half_products,
        "word_products": found.word_products,
    }
    return Measures(
        used.registers,
        used.scalar_registers,
        used.spills,
        used.scalar_spills,
        used.scratch_bytes,
        used.shared_bytes,
        used.occupancy,
        dict(sorted(counts["load"].items())),
        dict(sorted(counts["store"].items())),
        min((width for move in bulk for width in move.widths), default=0),
        sum(move.moved_bytes for move in narrow),
        sum(move.moved_bytes for move in narrow) / max(sum(move.moved_bytes for move in moved), 1),
        len(found.half_products) + len(_HALF_PRODUCTS.findall(compiled.assembly)),
        len(found.word_products),
        _address_bits(compiled, target),
        {measure: sorted(set(where)) for measure, where in places.items() if where},
    )


def _where(moved: Any) -> list[str]:
    return [f"{move.where} ({_widths(move)})" for move in moved]


def _widths(move: Move) -> str:
    return f"{move.kind} of {move.moved_bytes} bytes by {min(move.widths)}"


def _address_bits(compiled: Compiled, target: Target) -> int:
    if target.backend == "cuda":
        size = re.search(r"^\.address_size (\d+)", compiled.assembly, re.MULTILINE)
        narrow = any(register == "r" for register in _POINTER.findall(compiled.assembly))
        return 32 if narrow or size is None else int(size[1])
    # global and flat instructions take 64-bit addresses, or a 64-bit base in scalar registers
    layout = re.search(r'^target datalayout = "[^"]*-p1:(\d+)', compiled.llir, re.MULTILINE)
    return int(layout[1]) if layout else 0
