"""Instruction sets that tests run on."""

from collections.abc import Iterator

import pytest

from statehal_cpu.probe import load

native = load()


@pytest.fixture(params=native.usable_isas())
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set that this machine has, in use for one test; every binding reads the variable again."""
    before = native.isa()
    monkeypatch.setenv("STATEHAL_CPU_ISA", request.param)
    assert load().isa() == request.param
    yield request.param
    assert native.isa() == request.param
    native.use_isa(before)
