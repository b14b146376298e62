"""How much is drawn: Hypothesis settings by name."""

from typing import Literal

from hypothesis import HealthCheck, Phase, Verbosity, settings

ProfileName = Literal["dev", "ci", "thorough"]

EXAMPLES: dict[str, int] = {"dev": 15, "ci": 100, "thorough": 1000}
"""Examples a check, by profile."""


def profile(name: ProfileName, *, shrink: bool = True) -> settings:
    """Settings for a profile: ``ci`` draws the same examples at every run, ``thorough`` others each time.

    Args:
        shrink: look for a smaller example after a failure.
    """
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    return settings(
        max_examples=EXAMPLES[name],
        derandomize=name != "thorough",
        database=None,
        deadline=None,
        phases=phases,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
