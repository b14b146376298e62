"""Entry point: ``python -m statehal_transformers.demo``."""

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from transformers.utils import logging

from statehal import bind
from statehal.errors import StatehalError
from statehal_transformers.demo import DIFFERS, ENVIRONMENT, EQUAL, UNNOTICED
from statehal_transformers.demo.facts import facts
from statehal_transformers.demo.measure import measure
from statehal_transformers.demo.models import load, tiny
from statehal_transformers.demo.options import parse
from statehal_transformers.demo.progress import Shown
from statehal_transformers.demo.report import report
from statehal_transformers.demo.session import run
from statehal_transformers.demo.stored import run_stored

HYBRID = "qwen3_next"
"""The family that runs beside SmolLM2: most layers keep conv and recurrent state, the others keys and values."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    options = parse(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    errors = Console(file=sys.stderr)  # this very stream, also while loading hides another's bars
    shown = Shown(errors)
    try:
        bind(options.device, backend=options.backend)  # what cannot be had is said before a model is loaded
        loaded = load(options, shown.busy)
        course = run if options.store is None else run_stored
        session = course(options, loaded, shown.bar)
        found = facts(session, options)
        if options.model is None and options.family is None and not options.inject_fault:
            hybrid = course(options, tiny(options, HYBRID), shown.bar)
            found["hybrid"] = facts(hybrid, options)
        if options.measure:
            with shown.busy("measuring: a minute or more"):
                found["measured"] = measure(loaded.model, page_size=options.page_size, backend=options.backend)
    except StatehalError as error:
        errors.print(f"statehal demo: {error}", style="red", markup=False, highlight=False)
        return ENVIRONMENT
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        report(Console(highlight=False), found)
    codes = {"equal": EQUAL, "different": DIFFERS, "fault unnoticed": UNNOTICED}
    return max(codes[one["verdict"]] for one in (found, found.get("hybrid", found)))


if __name__ == "__main__":
    sys.exit(main())
