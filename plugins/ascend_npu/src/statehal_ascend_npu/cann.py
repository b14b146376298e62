"""What is installed of CANN and its driver, found by looking at files: nothing is loaded."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
"""Variables that CANN's set_env.sh sets to where the toolkit is."""

PLACES = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann", "/usr/local/Ascend/latest")
"""Where the toolkit's installer puts it."""

LIBRARIES = ("libascendcl.so", "libhccl.so", "libacl_op_compiler.so", "libge_runner.so", "libgraph.so")
"""What torch_npu is linked with."""

NODES = "davinci[0-9]*"
"""Device nodes that the driver makes, one a chip."""


@dataclass(frozen=True)
class Cann:
    """What was found.

    Attributes:
        home: the toolkit's folder, if there is one.
        missing: libraries that lie in none of the ``searched`` folders.
        searched: the folders, in the loader's order.
        chips: names of device nodes, such as ``davinci0``.
    """

    home: str
    missing: tuple[str, ...]
    searched: tuple[str, ...]
    chips: tuple[str, ...]


def look(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Cann:
    """Look for the toolkit's libraries and the driver's device nodes.

    Args:
        environ: of this process by default.
        root: where the file system begins.
    """
    settings = os.environ if environ is None else environ
    homes = [Path(settings[name]) for name in HOMES if settings.get(name)]
    homes += [root / place.lstrip("/") for place in PLACES]
    home = next((str(one) for one in homes if one.is_dir()), "")
    folders = list(dict.fromkeys(_folders(settings, homes)))
    missing = tuple(name for name in LIBRARIES if not any((folder / name).exists() for folder in folders))
    chips = tuple(sorted(node.name for node in (root / "dev").glob(NODES)))
    return Cann(home, missing, tuple(str(folder) for folder in folders), chips)


def _folders(settings: Mapping[str, str], homes: list[Path]) -> Iterator[Path]:
    for part in settings.get("LD_LIBRARY_PATH", "").split(":"):
        if part:
            yield Path(part)
    for home in homes:
        yield home / "lib64"
