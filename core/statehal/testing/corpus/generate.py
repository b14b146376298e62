"""Write the corpus: ``python -m statehal.testing.corpus.generate [FOLDER]``, by default beside this file.

The same bytes come out every time and everywhere: whole numbers, and decimal arithmetic for ``silu``.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from statehal.testing.corpus import conv_cases, layout_cases
from statehal.testing.corpus.rows import Json

VERSION = 1
"""Rises when a key changes its meaning or goes away."""

LAYOUTS = (
    "Where the bytes of a paged pool lie. Each vector holds a spec, a layout and its placement in a buffer, and then "
    "what follows: the integers of every field, the address forms that exist, ids of sample tokens and pages, and the "
    "bytes of sample elements, from the start of the buffer. docs/corpus.md explains every key."
)
CONVOLUTIONS = (
    "One step of a causal conv1d over paged windows. Each vector holds weights, slots before the step, the step and "
    "its commit, and then what follows: outputs, the slots after the step and after the commit, and the live rows. "
    "Values are small whole numbers, exact in every dtype and any order of summation, but for the outputs of silu, "
    "which are float64 with a tolerance. docs/corpus.md explains every key."
)


def part(name: str, description: str, vectors: list[Json]) -> str:
    """A file of vectors, one a line."""
    head = {"$schema": f"{name}.schema.json", "version": VERSION, "description": description}
    lines = ",\n".join(json.dumps(one, separators=(",", ":"), allow_nan=False) for one in vectors)
    start = json.dumps(head, indent=0).removesuffix("\n}")
    return f'{start},\n"vectors": [\n{lines}\n]\n}}\n'


def texts() -> dict[str, str]:
    """What each file holds, by its name."""
    return {
        "layout-vectors.json": part("layout-vectors", LAYOUTS, layout_cases.every()),
        "conv-vectors.json": part("conv-vectors", CONVOLUTIONS, conv_cases.every()),
    }


def main(arguments: Sequence[str]) -> None:
    """Write all files."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    for name, text in texts().items():
        folder.joinpath(name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
