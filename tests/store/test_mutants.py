"""Every check of stores notices a planted fault by its assertion, and a store without one passes."""

import pytest

from statehal.testing.stores import CHECKS, run_check
from store.memory_store import memory_target
from store.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.check}: {mutant.name}")
def test_the_named_check_fails_by_its_assertion(mutant: Mutant) -> None:
    result = run_check(CHECKS[mutant.check], memory_target(mutant.kind))
    assert (result.status, result.by) == ("failed", "assertion"), result.message


@pytest.mark.parametrize("name", CHECKS)
def test_a_store_in_memory_passes(name: str) -> None:
    result = run_check(CHECKS[name], memory_target())
    assert result.status == "passed", result.message


def test_every_check_has_a_mutant() -> None:
    assert {mutant.check for mutant in MUTANTS} == set(CHECKS)
