"""One compilation serves batches of every size, and every size of a pool."""

from collections.abc import Iterable

import pytest

from statehal_triton_ops.compile import scenario
from statehal_triton_ops.compile.rows import rows
from statehal_triton_ops.compile.scenarios import conv, kv

BATCHES = (1, 3, 16, 100, 4096)
KV = ("kv.write bfloat16", "kv.rope_write bfloat16", "kv.write_latent float8_e4m3fn")


def compilations(scenarios: Iterable[scenario.Scenario], family: str) -> set[str]:
    return {row.specialised.key for row in rows(scenarios, [family])}


@pytest.mark.parametrize("family", ["cuda", "hip64"])
@pytest.mark.parametrize("topic", KV)
def test_a_write_of_any_number_of_tokens(topic: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = next(one for one in kv.scenarios() if one.name.startswith(topic))
    found = []
    for tokens in BATCHES:
        monkeypatch.setattr(kv, "TOKENS", tokens)
        found.append(compilations([chosen], family))
    assert found[0]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("family", ["cuda", "hip64"])
def test_a_step_of_any_number_of_requests_and_tokens(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = next(one for one in conv.scenarios() if one.quick)
    found = []
    for requests in (1, 3, 16, 100):
        monkeypatch.setattr(conv, "REQUESTS", requests)
        monkeypatch.setattr(conv, "TOKENS", 7 * requests)
        found.append(compilations([chosen], family))
    assert found[0]
    assert all(one == found[0] for one in found)


def test_a_pool_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [next(one for one in kv.scenarios() if one.name.startswith(topic)) for topic in KV]
    before = compilations(chosen, "cuda")
    for pool_bytes in (3 << 30, (5 << 30) + 123456, 64 << 30):
        monkeypatch.setattr(
            scenario.pool_of, "__kwdefaults__", dict(scenario.pool_of.__kwdefaults__ or {}, total_bytes=pool_bytes)
        )
        assert compilations(chosen, "cuda") == before
