"""Every mutant is noticed by the check named beside it, through its assertion; every check has a mutant."""

import pytest

from conformance import mutants_kv
from conformance.mutant import Mutant, target
from statehal.testing import CHECKS, run_check

MUTANTS: list[Mutant] = [*mutants_kv.MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_named_check_fails_by_its_assertion(mutant: Mutant) -> None:
    result = run_check(CHECKS[mutant.check], target(mutant.make()), profile_name="ci", shrink=False)
    assert (result.status, result.by) == ("failed", "assertion"), result.message


def test_every_check_has_a_mutant() -> None:
    assert {mutant.check for mutant in MUTANTS} == set(CHECKS)


def test_names_are_distinct() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
