"""Instructions that access global memory, in the optimised LLVM module.

NVIDIA's are PTX in inline assembly, AMD's are plain loads and stores of address space 1 and buffer intrinsics.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from statehal_triton_ops.compile.locations import Chain, LlvmLocations

_SIZES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
_PTX = re.compile(r"(?<![a-z])(ld|st)\.(?!shared|param|local|const)[\w.:]*?(?:\.v(\d))?\.[a-z](\d+)\b")
_COPY = re.compile(r"(?<![a-z])cp\.async\.\w+\.shared\.global[\w.:]* \[[^\]]*\], *\[[^\]]*\], *(0x[0-9a-f]+|\d+)")
_BUFFER = re.compile(r"@llvm\.amdgcn\.raw\.(?:ptr\.)?buffer\.(load|store)\.(?:v(\d+))?[a-z]+(\d+)")
_LOAD = re.compile(r"= load (?:volatile )?([^,]+), ptr addrspace\(1\)")
_STORE = re.compile(r"\bstore (.+?) (?:%\S+|<.*>|-?\d+|zeroinitializer), ptr addrspace\(1\)")
_DEBUG = re.compile(r"!dbg !(\d+)")


@dataclass(frozen=True)
class Access:
    """A memory instruction of one thread."""

    kind: str
    width: int
    chain: Chain


def accesses(llir: str) -> list[Access]:
    """Every access of global memory in the optimised code."""
    locations = LlvmLocations(llir)
    made = []
    for line in llir.splitlines():
        debug = _DEBUG.search(line)
        chain = locations.chain(debug[1]) if debug else ()
        made += [Access(kind, width, chain) for kind, width in _widths(line)]
    return made


def _widths(line: str) -> Iterator[tuple[str, int]]:
    if line.startswith(("declare", "define")):
        return
    if " asm " in line:
        for kind, count, bits in _PTX.findall(line):
            yield "load" if kind == "ld" else "store", int(count or 1) * int(bits) // 8
        for size in _COPY.findall(line):
            yield "load", int(size, 0)
        return
    buffer = _BUFFER.search(line)
    if buffer:
        yield buffer[1], int(buffer[2] or 1) * int(buffer[3]) // 8
        return
    for kind, pattern in (("load", _LOAD), ("store", _STORE)):
        plain = pattern.search(line)
        if plain:
            yield kind, _type_bytes(plain[1])


def _type_bytes(text: str) -> int:
    vector = re.fullmatch(r"<(\d+) x (\w+)>", text.strip())
    count, element = (int(vector[1]), vector[2]) if vector else (1, text.strip())
    return count * (_SIZES[element] if element in _SIZES else -(-int(element.removeprefix("i")) // 8))
