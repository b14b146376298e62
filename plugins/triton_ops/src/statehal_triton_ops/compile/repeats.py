"""How often each element of a tensor of addresses is the same as its neighbours."""

import re
from math import inf

from statehal_triton_ops.compile.dataflow import Program, Value

_CONSTANT = re.compile(r"arith\.constant (?:dense<)?(\d+)>? :")


class Repeats:
    """The runs of equal elements in the tensors of a kernel, given in one of Triton's dialects.

    ``tl.arange(0, N) // 8`` comes in runs of eight, and so does what is computed or loaded from it alone: a program
    that loads the id of a row for each piece of the row moves one id a row.
    """

    def __init__(self, text: str) -> None:
        self._program = Program(text)
        self._known: dict[str, float] = {}

    def of_access(self, number: int, line: str) -> float:
        """The length of the runs of equal addresses of the load or store on a line; infinite where all are equal."""
        operands = self._program.operands[number]
        if "buffer_load" in line:
            operands = operands[:2]
        elif "buffer_store" in line:
            operands = operands[1:3]
        else:
            operands = operands[:1]
        return min(self._runs(name) for name in operands)

    def _runs(self, name: str) -> float:
        if name not in self._known:
            self._known[name] = inf  # a value carried around a loop adds no variety of its own
            value = self._program.values.get(name)
            self._known[name] = self._look(value) if value else inf
        return self._known[name]

    def _look(self, value: Value) -> float:
        if value.operation == "tt.make_range":
            return 1
        operands = value.operands
        if value.operation == "tt.load":
            operands = operands[:1]
        elif value.operation.endswith("buffer_load"):
            operands = operands[:2]
        runs = min((self._runs(operand) for operand in operands), default=inf)
        if value.operation in ("arith.divsi", "arith.divui"):
            return runs * self._constant(operands[1], 1)
        if value.operation in ("arith.shrsi", "arith.shrui"):
            return float(runs * 2 ** self._constant(operands[1], 0))
        return runs

    def _constant(self, name: str, otherwise: int) -> int:
        value = self._program.values.get(name)
        found = _CONSTANT.search(value.line) if value else None
        return int(found[1]) if found else otherwise
