"""Every mutant is noticed by the check named beside it, through its assertion; every check has a mutant."""

from importlib import import_module
from pathlib import Path

import pytest

from conformance.mutant import Mutant, target
from statehal.testing import CHECKS, run_check

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("mutants_*.py"))
MUTANTS: list[Mutant] = [mutant for name in MODULES for mutant in import_module(f"conformance.{name}").MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_named_check_fails_by_its_assertion(mutant: Mutant) -> None:
    result = run_check(CHECKS[mutant.check], target(mutant.make()), profile_name="ci", shrink=False)
    assert (result.status, result.by) == ("failed", "assertion"), result.message


def test_every_check_has_a_mutant() -> None:
    assert {mutant.check for mutant in MUTANTS} == set(CHECKS)


def test_names_are_distinct() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
