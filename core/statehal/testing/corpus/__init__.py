"""Layouts and convolutions as JSON vectors, for authors of kernels in any language; ``docs/corpus.md`` is the manual.

``layout-vectors.json`` and ``conv-vectors.json`` lie beside this file, each with its schema. The modules here make them
from plain integer loops and import nothing else of statehal, so that both sides of a comparison are independent.
"""

import json
from importlib.resources import files
from typing import Any

NAMES = ("layout-vectors", "conv-vectors")
"""The parts of the corpus."""


def load(name: str) -> dict[str, Any]:
    """One part of the corpus: ``version``, ``description`` and ``vectors``."""
    loaded: dict[str, Any] = json.loads(files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return loaded
