"""Source locations, by which an access of the optimised code is traced to the load or store that it came from.

A location is the chain of ``(line, column)`` from the innermost function outwards; file names are left out, because
LLVM splits them into name and directory, and a chain is rarely ambiguous without.
"""

import re
from pathlib import PurePath

Chain = tuple[tuple[int, int], ...]

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FILE = re.compile(r'^"([^"]*)":(\d+):(\d+)(?: to .*)?$')
_NAMED = re.compile(r'^"[^"]*"\((.*)\)$')
_DEBUG = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\((.*)\)$", re.MULTILINE)


class MlirLocations:
    """The location aliases of a module's text, ``#loc7 = loc(callsite(#loc1 at #loc2))``."""

    def __init__(self, text: str) -> None:
        self._aliases = dict(_ALIAS.findall(text))

    def chain(self, location: str) -> Chain:
        """Of what stands in ``loc(...)``."""
        return tuple((line, column) for _, line, column in self._places(location))

    def of_line(self, line: str) -> Chain:
        """Of the operation on a line."""
        return self.chain(_in_line(line))

    def where(self, line: str) -> str:
        """Of the operation on a line, for people: ``places.py:53 in kv_write.py:40``."""
        return " in ".join(f"{name}:{number}" for name, number, _ in self._places(_in_line(line))) or "an unknown line"

    def _places(self, location: str) -> tuple[tuple[str, int, int], ...]:
        location = location.strip()
        if location.startswith("callsite("):
            inner, outer = _split(location[len("callsite(") : -1])
            return self._places(inner) + self._places(outer)
        if location in self._aliases:
            return self._places(self._aliases[location])
        at = _FILE.match(location)
        if at:
            return ((PurePath(at[1]).name, int(at[2]), int(at[3])),)
        named = _NAMED.match(location)
        return self._places(named[1]) if named else ()


class LlvmLocations:
    """The ``!DILocation`` entries of a module's text."""

    def __init__(self, text: str) -> None:
        self._entries = dict(_DEBUG.findall(text))

    def chain(self, number: str) -> Chain:
        """Of ``!dbg !number``."""
        made: list[tuple[int, int]] = []
        while number in self._entries:
            entry = self._entries[number]
            line, column = re.search(r"line: (\d+)", entry), re.search(r"column: (\d+)", entry)
            made.append((int(line[1]) if line else 0, int(column[1]) if column else 0))
            outer = re.search(r"inlinedAt: !(\d+)", entry)
            number = outer[1] if outer else ""
        return tuple(made)


def _in_line(line: str) -> str:
    return line.rpartition(" loc(")[2].rstrip()[:-1]


def _split(text: str) -> tuple[str, str]:
    """The two sides of `` at `` that lie in no inner parenthesis."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and text.startswith(" at ", place):
            return text[:place], text[place + 4 :]
    raise ValueError(f"no call site in {text!r}")
