"""What Triton's own dialect says of a kernel's arithmetic, the same for every target.

Two things are looked for. Multiplications in a 16-bit floating type: kernels widen first. And 32-bit products in an
address: an id or a token times a stride passes 2**31 in a large pool, silently, so a product of two values known at run
time alone, or of a loaded value and anything, is computed in 64 bits.
"""

import re
from dataclasses import dataclass, field

from statehal_triton_ops.compile.dataflow import Program, Value
from statehal_triton_ops.compile.locations import MlirLocations

_FLOATS = re.compile(r"= (?:arith\.(?:mul|div|rem)f|math\.fma)\b")
_HALF = re.compile(r"(?:\b|x)b?f16\b")
_WORD = re.compile(r"(?:\b|x)i32\b")
_RUN_TIME = {"argument", "counter", "tt.get_program_id", "tt.get_num_programs", "tt.load", "tt.make_range"}


@dataclass
class Arithmetic:
    """Faults of arithmetic, by their places in the source.

    Attributes:
        half_products: multiplications, divisions and fused multiply-adds in bfloat16 or float16.
        word_products: 32-bit products that an address is made of.
    """

    half_products: list[str] = field(default_factory=list)
    word_products: list[str] = field(default_factory=list)


def arithmetic(ttir: str) -> Arithmetic:
    """Read a kernel's text in Triton's dialect."""
    locations = MlirLocations(ttir)
    program = Program(ttir)
    offsets: set[str] = set()
    for value in program.values.values():
        if value.operation == "tt.addptr":
            offsets |= program.sources(value.operands[1])
    halves = [line for line in ttir.splitlines() if _FLOATS.search(line) and _HALF.search(_types(line))]
    words = [value.line for name, value in program.values.items() if name in offsets and _risky(program, value)]
    return Arithmetic([locations.where(line) for line in halves], [locations.where(line) for line in words])


def _risky(program: Program, value: Value) -> bool:
    if value.operation not in ("arith.muli", "arith.shli") or not _WORD.search(_types(value.line)):
        return False
    sides = [{program.values[name].operation for name in program.sources(one)} for one in value.operands[:2]]
    return any("tt.load" in side for side in sides) or all(side & _RUN_TIME for side in sides)


def _types(line: str) -> str:
    return line.rpartition(" loc(")[0].rpartition(" : ")[2]
