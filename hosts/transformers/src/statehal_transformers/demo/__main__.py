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
from statehal_transformers.demo.models import load
from statehal_transformers.demo.options import parse
from statehal_transformers.demo.progress import Shown
from statehal_transformers.demo.report import report
from statehal_transformers.demo.session import run


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
        session = run(options, loaded, shown.bar)
    except StatehalError as error:
        errors.print(f"statehal demo: {error}", style="red", markup=False, highlight=False)
        return ENVIRONMENT
    equal = session.comparison.equal
    verdict = ("equal" if equal else "different") if not (session.fault and equal) else "fault unnoticed"
    found = facts(session, options, verdict)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        report(Console(highlight=False), found)
    return {"equal": EQUAL, "different": DIFFERS, "fault unnoticed": UNNOTICED}[verdict]


if __name__ == "__main__":
    sys.exit(main())
