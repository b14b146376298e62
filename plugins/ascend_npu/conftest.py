"""Operators for the host, and what pytest, which looks for doctests in every module, does not import here."""

from collections.abc import Callable, Iterator

import pytest

from npu_contract_model import register

collect_ignore = ["evidence", "model"]  # scripts for other environments; modules that register operators

Register = Callable[..., None]


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """``operators("current")`` registers that causal conv1d and all KV operators; they go with the test.

    ``operators(None, "nd")`` registers no causal conv1d, and of the KV operators ``nd`` alone.
    """
    monkeypatch.setenv("STATEHAL_ASCEND_NPU_OPERATORS", "npu_contract_model")

    def add(conv: str | None, *kv: str) -> None:
        if conv is not None:
            register.conv_operator(conv)
        register.kv_operators(*kv)

    register.clear()
    yield add
    register.clear()
