"""Which values a value is computed from, read from the text of one of Triton's dialects."""

import re
from dataclasses import dataclass, field

_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_RESULT = re.compile(r"^\s*(%[\w.$-]+)(?::(\d+))? = (.*)$")
_ARGUMENT = re.compile(r"(%[\w.$-]+): ")
_CARRIED = re.compile(r"(?:iter_args|scf\.while )\s*\(([^)]*)\)")
_COUNTER = re.compile(r"scf\.for (%\S+) =")


@dataclass
class Value:
    """A value of a program.

    Attributes:
        operation: what makes it; ``argument`` of the kernel, ``counter`` of a loop, ``carried`` by a loop or branch.
        operands: the values that it is made of.
        line: where it stands.
    """

    operation: str
    operands: list[str]
    line: str


@dataclass
class _Region:
    """An open brace: the names that are known inside it, and what each of the values that it yields goes to."""

    names: dict[str, str] = field(default_factory=dict)
    yields: list[list[str]] = field(default_factory=list)

    def takes(self, place: int) -> list[str]:
        return self.yields[place] if place < len(self.yields) else []


class Program:
    """A kernel's values, each under a name of its own: the text uses a name again in another region.

    Attributes:
        values: by name; one that is carried has all as operands that may be carried into it.
        operands: of the operation on each line, by the number of the line.
    """

    def __init__(self, text: str) -> None:
        self.values: dict[str, Value] = {}
        self.operands: dict[int, list[str]] = {}
        self._regions = [_Region()]
        for number, line in enumerate(text.splitlines()):
            if line.lstrip().startswith("tt.func"):
                for name in _ARGUMENT.findall(line):
                    self._define(name, "argument", [], line)
            else:
                self._read(number, line)

    def sources(self, start: str) -> set[str]:
        """A value and every one that it is computed from; a loaded value and a pointer are not looked into."""
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self.values:
                continue
            seen.add(name)
            if self.values[name].operation not in ("tt.load", "tt.addptr"):
                waiting += self.values[name].operands
        return seen

    def _read(self, number: int, line: str) -> None:
        body = line.partition(" loc(")[0].strip()
        result = _RESULT.match(body)
        rest = result[3] if result else body
        names = [] if result is None else [result[1]]
        if result and result[2]:
            names = [f"{result[1]}#{index}" for index in range(int(result[2]))]
        operands = self.operands[number] = [self._known(name) for name in _VALUE.findall(rest.partition(" : ")[0])]
        if rest.startswith("scf.") and rest.endswith("{"):
            self._open(rest, names, line)
        elif result:
            operation = re.split(r"[\s(<]", rest, maxsplit=1)[0].strip('"')
            for name in names:
                self._define(name, operation, operands, line)
            if rest.endswith("{"):
                self._regions.append(_Region())
        else:
            self._read_structure(rest, operands, line)

    def _read_structure(self, rest: str, operands: list[str], line: str) -> None:
        """A line without a result: what a region yields, the head of a block, a brace."""
        if rest.startswith(("scf.yield", "scf.condition")):
            for place, value in enumerate(operands[rest.startswith("scf.condition") :]):
                for name in self._regions[-1].takes(place):
                    self.values[name].operands.append(value)
        elif rest.startswith("^"):
            for place, name in enumerate(_ARGUMENT.findall(rest)):
                self._define(name, "carried", list(self._regions[-1].takes(place)), line)
        elif rest.startswith("}"):
            closed = self._regions.pop() if len(self._regions) > 1 else _Region()
            if rest.endswith("{"):
                self._regions.append(_Region(yields=closed.yields))
        elif rest.endswith("{") and not rest.startswith("module"):
            self._regions.append(_Region())

    def _open(self, rest: str, names: list[str], line: str) -> None:
        inside = _CARRIED.search(rest)
        pairs = [pair.split(" = ") for pair in inside[1].split(", ")] if inside and inside[1] else []
        entering = [self._known(value) for _, value in pairs]
        results = [self._define(name, "carried", entering[n : n + 1], line) for n, name in enumerate(names)]
        self._regions.append(_Region())
        arguments = [self._define(pairs[n][0], "carried", [value], line) for n, value in enumerate(entering)]
        counter = _COUNTER.match(rest)
        if counter:
            self._define(counter[1], "counter", [], line)
        if rest.startswith("scf.while"):  # what its condition passes on need not be what it takes
            self._regions[-1].yields = [[*arguments, *results]] * max(len(arguments), len(results))
        else:
            self._regions[-1].yields = [[*arguments[n : n + 1], name] for n, name in enumerate(results)]

    def _define(self, name: str, operation: str, operands: list[str], line: str) -> str:
        own = f"{name}@{len(self.values)}"
        self.values[own] = Value(operation, operands, line)
        self._regions[-1].names[name] = own
        return own

    def _known(self, name: str) -> str:
        return next((region.names[name] for region in reversed(self._regions) if name in region.names), name)
