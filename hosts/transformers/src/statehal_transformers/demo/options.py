"""The command line of the demo."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statehal_transformers.demo.long_prompts import LONG_PROMPTS
from statehal_transformers.demo.tiny import FAMILIES

PROMPTS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Name three prime numbers and say why they are prime.",
    "My shopping list: bread, milk, six eggs, two lemons and a bag of rice. Which of these things come from animals?",
)


@dataclass(frozen=True)
class Options:
    """What to run: ``model``, a tiny one of a ``family``, or SmolLM2, whose weights are fetched into ``cache_dir``."""

    model: str | None
    family: str | None
    device: str
    dtype: str
    backend: str | None
    page_size: int
    prompts: tuple[str, ...]
    max_new_tokens: int
    seed: int
    inject_fault: bool
    measure: bool
    store: Path | None
    object_tokens: int
    json: bool
    cache_dir: Path


def parse(arguments: Sequence[str] | None) -> Options:
    """Read the command line; a bad one exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m statehal_transformers.demo",
        description="Generate text twice, on a statehal pool and on transformers' own cache, and compare every logit.",
        epilog="exit codes: 0 all logits equal, 1 some logit differs, 2 usage or environment, 3 a fault went unnoticed",
    )
    add = parser.add_argument
    add("--model", metavar="PATH_OR_ID", help="a folder, a .gguf file or a hub id; SmolLM2-135M-Instruct if left out")
    add("--family", choices=FAMILIES, help="a tiny model with random weights, of that family of caches")
    add("--device", default="cpu", help="torch device of model and pool (default: %(default)s)")
    add("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"), help="default: %(default)s")
    add("--backend", metavar="NAME", help="statehal backend; the best that is ready if left out")
    add("--page-size", type=_positive, default=16, metavar="TOKENS", help="default: %(default)s")
    add("--prompt", action="append", metavar="TEXT", help="may be repeated; prompts of its own if left out")
    add("--max-new-tokens", type=_positive, default=32, metavar="N", help="default: %(default)s")
    add("--seed", type=int, default=0, metavar="N", help="of the sampling, in both runs (default: %(default)s)")
    add(
        "--inject-fault",
        action="store_true",
        help="flip a byte of the pool between two steps: logits must differ",
    )
    add("--measure", action="store_true", help="also measure decoding and the state that beams and windows hold")
    add(
        "--store",
        type=Path,
        metavar="DIR",
        help="keep state in this directory, and do not compute the prompt tokens of which it has the state",
    )
    add("--object-tokens", type=_positive, default=64, metavar="N", help="of a stored block (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object")
    add("--cache-dir", type=Path, default=_cache_dir(), metavar="DIR", help="of fetched weights (default: %(default)s)")
    given = parser.parse_args(arguments)
    if given.model is not None and given.family is not None:
        parser.error("--model and --family are alternatives")
    if given.inject_fault and given.max_new_tokens < 3:
        parser.error("--inject-fault flips a byte after step 2 and looks at step 3: it needs --max-new-tokens 3")
    if given.inject_fault and given.store is not None:
        parser.error("--inject-fault and --store are alternatives")
    prompts = tuple(given.prompt or (PROMPTS if given.store is None else LONG_PROMPTS))
    if not all(prompts):
        parser.error("a prompt is empty")
    values = vars(given) | {"prompts": prompts}
    del values["prompt"]
    return Options(**values)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def _cache_dir() -> Path:
    """Where a user's caches go by the XDG convention."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "statehal"
