"""``python stub_libraries.py FOLDER``: libraries with the names and symbols that torch_npu misses where CANN is not.

With FOLDER on LD_LIBRARY_PATH torch_npu can be imported on a CPU, which is enough to look at its schemas and to run its
Meta kernels. Every function does nothing and returns 0, so nothing may be allocated on ``npu``. Needs cc and nm.
"""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

IGNORED = re.compile(r"_ITM_|__gmon_start__|_ZTH|_?Py")
"""Symbols that may stay undefined, or that Python itself has."""


def main(folder: Path) -> None:
    """Compile one library of each name that is needed and not found."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = [Path(str(one.locate())) for one in importlib.metadata.files("torch_npu") or () if ".so" in one.name]
    torch = [Path(str(one.locate())) for one in importlib.metadata.files("torch") or () if ".so" in one.name]
    ours = [path for path in ours if "torchair" not in path.parts]
    system = {path for one in [*ours, *torch] for path in resolved(one)}
    missing = {name for one in ours for name in symbols(one, "--undefined-only")}
    for one in {*ours, *torch, *system}:
        missing -= symbols(one, "--defined-only")
    missing = {name for name in missing if not IGNORED.match(name)}
    names = sorted({name for one in ours for name in unresolved(one)} - {path.name for path in [*ours, *torch]})
    lines = [f"int {name}(void) {{ return 0; }}" for name in sorted(missing)]
    compile_library(folder, "libstatehalstubs.so", lines, ())
    for name in names:
        compile_library(folder, name, [], ("-Wl,--no-as-needed", f"-L{folder}", "-lstatehalstubs"))
    print(f"{len(missing)} symbols in stubs of {', '.join(names)}")


def compile_library(folder: Path, name: str, lines: Iterable[str], options: Iterable[str]) -> None:
    """Compile C lines into a library of that name."""
    source = folder / f"{name}.c"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-o", folder / name, source, f"-Wl,-soname,{name}", f"-Wl,-rpath,{folder}",
         *options],
        check=True,
    )  # fmt: skip


def symbols(library: Path, which: str) -> set[str]:
    """Names of dynamic symbols, without versions."""
    text = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=False).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines() if line.strip()}


def resolved(library: Path) -> list[Path]:
    """The libraries that the loader finds for one."""
    return [Path(path) for path in re.findall(r"=> (/\S+)", _ldd(library))]


def unresolved(library: Path) -> list[str]:
    """Names of those that it does not find."""
    return re.findall(r"(\S+) => not found", _ldd(library))


def _ldd(library: Path) -> str:
    return subprocess.run(["ldd", library], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
