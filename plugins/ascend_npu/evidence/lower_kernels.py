"""``python lower_kernels.py FOLDER``: every kernel through triton-ascend to linalg and through bishengir's planning.

Needs triton-ascend and ascendnpu-ir, no NPU and no CANN. The compiler's last stage, which writes machine code, comes
with CANN and is absent: it is expected to be missed, and all that comes before it to succeed. FOLDER receives what was
made.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import ir
from triton.backends.ascend import compiler
from triton.compiler.compiler import ASTSource, GPUTarget, make_backend

CHIP = "Ascend910B3"
KERNELS = Path(__file__).parents[1] / "src/statehal_ascend_npu/kernels/commit.py"
LAUNCHES = KERNELS.parents[1] / "conv/launches.py"
BISHENGIR = Path(triton.__file__).parents[1] / "ascendnpuir/bin/bishengir-compile"
OPTIONS = (
    f"--target={CHIP}",
    "--enable-auto-multi-buffer=True",
    "--enable-hfusion-compile=true",
    "--enable-hivm-compile=true",
    "--enable-triton-kernel-compile=true",
    "--mlir-print-ir-after=hivm-plan-memory",
)
REACHED = "External hivmc run fails"
"""What is said where all passes succeeded and only machine code is left to be made."""

ELEMENTWISE = "DiscreteMemAccess"
"""Of an access that was lowered to a loop over single elements, because its addresses have no structure."""

UB = 192 * 1024
"""Bytes of a core's unified buffer."""

SLOTS = {"words_ptr": "*i32", "cursors_ptr": "*i32", "slots_ptr": "*i64", "accepted_ptr": "*i64"}
COUNTS = {"total": "i32", "pieces": "i32", "count": "i32"}
COMMIT = SLOTS | {"states_ptr": "*i64", "pieces_ptr": "*i64"} | COUNTS | {"drafts": "i32", "s_slot": "i64"}
COPY = {"words_ptr": "*i32", "target_ptr": "*i64", "source_ptr": "*i64", "pieces_ptr": "*i64"} | COUNTS
ROWS = {"rows_ptr": "*bf16", "dead_ptr": "*i32", "rows": "i32", "words": "i32", "s_row": "i32"}


def cases(block: int, columns: int) -> list[tuple[str, str, dict[str, str], dict[str, Any]]]:
    """Name, kernel, signature and constants of all that is launched: width 4 under both protocols, and width 8."""
    commit = COMMIT | {"s_cursor": "i32"}
    common = {"STATES": True, "BLOCK": block, "COLUMNS": columns}
    return [
        ("commit offset", "commit_slots", commit, common | live(3) | {"ROLLBACK": False, "MOVES": False}),
        ("commit rollback", "commit_slots", commit, common | live(3) | {"ROLLBACK": True, "MOVES": True}),
        ("commit width 8", "commit_slots", commit, common | live(7) | {"ROLLBACK": True, "MOVES": True}),
        ("copy_pieces", "copy_pieces", COPY | {"s_slot": "i64"}, {"BLOCK": block}),
        ("zero_rows", "zero_rows", ROWS, {"BLOCK": block}),
    ]


def live(rows: int) -> dict[str, int]:
    """Constants of a window with so many live rows."""
    return {"LIVE": rows, "TILE": 1 << (rows - 1).bit_length()}


def constant(name: str) -> int:
    """A constant of the plugin, read from its source: importing it would import statehal and torch."""
    found = re.search(rf"^{name} = (\d+)$", LAUNCHES.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{LAUNCHES} has no {name}"
    return int(found[1])


def linalg(kernel: Any, signature: dict[str, str], constants: dict[str, Any]) -> str:
    """The kernel in linalg, as triton-ascend hands it to bishengir."""
    target = GPUTarget("npu", CHIP, 0)
    backend = make_backend(target)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    source = ASTSource(kernel, signature, constants)
    module = source.make_ir(options, backend.get_codegen_implementation(), backend.get_module_map(), context)
    metadata = {"hash": "", "target": target, **vars(options)}
    module = compiler.make_ttir(module, metadata, options)
    text = compiler.ttir_to_linalg(module, metadata, options, named_ops=True)
    made: str = compiler._parse_linalg_metadata(text, metadata)[0]
    return made


def planned(path: Path) -> tuple[str, int]:
    """What bishengir-compile says, and how many bytes of the unified buffer it has planned."""
    done = subprocess.run(
        [BISHENGIR, path, *OPTIONS, "-o", path.with_suffix("")], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    path.with_suffix(".log").write_text(said, encoding="utf-8")
    return said, max((end for line in said.splitlines() for end in ends(line)), default=0)


def ends(line: str) -> list[int]:
    """Where the buffers of a line of planned code end: ``pointer_cast(%c32_i64, ..) : memref<4x1024xi32, ..<ub>>``."""
    found = re.search(r"pointer_cast\((.*?)\).*memref<([\dx]+)x[a-z]+(\d+),.*<ub>", line)
    if found is None:
        return []
    size = int(found[3]) // 8
    for axis in found[2].split("x"):
        size *= int(axis)
    return [int(offset) + size for offset in re.findall(r"%c(\d+)_i64", found[1])]


def overflow(said: str) -> str:
    """The overflow that is reported, if one is."""
    found = re.search(r"ub overflow, requires \d+ bits while \d+ bits available", said)
    return found[0] if found else ""


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    spec = importlib.util.spec_from_file_location("commit", KERNELS)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    block, columns = constant("BLOCK"), constant("COLUMNS")
    print(f"triton-ascend {triton.__version__}, {CHIP}, BLOCK {block}, COLUMNS {columns}")
    good = True
    for name, kernel, signature, constants in cases(block, columns):
        path = folder / f"{name.replace(' ', '_')}.mlir"
        text = linalg(getattr(kernels, kernel), signature, constants)
        path.write_text(text, encoding="utf-8")
        said, used = planned(path)
        reached = REACHED in said and not overflow(said) and 0 < used <= UB and ELEMENTWISE not in text
        good &= reached
        print(f"{name}: linalg; {'planned' if reached else 'FAILED'}, {used} of {UB} bytes of the unified buffer")
    # the planning is no rubber stamp: sixteen times the block does not fit, and is refused
    wide = next(one for one in cases(16 * block, columns) if one[1] == "copy_pieces")
    path = folder / "too_wide.mlir"
    path.write_text(linalg(getattr(kernels, wide[1]), wide[2], wide[3]), encoding="utf-8")
    refused = overflow(planned(path)[0])
    print(f"copy_pieces with BLOCK {16 * block}: {refused or 'NOT REFUSED'}")
    return 0 if good and refused else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
