"""What a backend's operations take on the CPU, as multiples of a copy of the same bytes.

One thread, process CPU time, medians of rounds in which everything that is compared runs once, in turn: what
else the machine does meets all of them alike. Ratios are of one run; microseconds are of one machine.
"""

from statehal.bench.operation import Operation
from statehal.bench.operations import OPERATIONS
from statehal.bench.rounds import Row, compare, measure, rows_of

__all__ = ["OPERATIONS", "Operation", "Row", "compare", "measure", "rows_of"]
