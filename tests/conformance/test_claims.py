"""What a backend claims is its own: what the reference does for it counts for nothing."""

from collections.abc import Callable
from typing import Any

import pytest

import statehal.reference as reference
from conformance.mutant import MutantBackend, target
from plugin_fakes import discover
from statehal.hookspecs import hookimpl
from statehal.spec import Attention, Latent
from statehal.testing import CHECKS, Target, run_check

SERVES = CHECKS["discovery/it_serves_what_it_claims"]
PLAIN = {"store:bfloat16", "window:bfloat16"}


def only(**wanted: Any) -> Callable[[Any, Any], Any]:
    """Answers for sub-pools whose spec has these attributes; an attribute may be a set of values."""

    def change(made: Any, request: Any) -> Any:
        spec = request.spec if hasattr(request, "spec") else request.subpool.spec
        return made if all(getattr(spec, name, None) in values for name, values in wanted.items()) else None

    return change


def narrow(*tags: str, **changes: Any) -> MutantBackend:
    """Serves bfloat16 without scales and rings alone, and claims some tags more."""
    kv, conv = only(dtype={"bfloat16"}, scales={None}), only(dtype={"bfloat16"}, extra={()})
    given: dict[str, Any] = {"kv": kv, "conv": conv, "info": {"capabilities": PLAIN | {*tags}}}
    return MutantBackend(**(given | changes))


def told(judged: Target) -> list[str]:
    """The evidence, a line an objection; pytest adds one of its own."""
    result = run_check(SERVES, judged)
    assert result.by in ("", "assertion"), result.message
    return [line.strip() for line in result.message.splitlines() if line.strip().startswith("it")]


def test_what_is_claimed_and_served_passes() -> None:
    assert told(target(narrow())) == []
    assert told(target(MutantBackend())) == []
    assert told(Target("reference")) == []


@pytest.mark.parametrize(
    ("tag", "told_of"),
    [
        ("store:int8", "statehal_fused_kv_write answered None for an Attention sub-pool of int8 in the layout of"),
        ("store:float32", "statehal_fused_kv_write answered None for a Latent sub-pool of float32 in the layout of"),
        ("window:float16", "statehal_causal_conv1d answered None for a ConvRecurrent sub-pool of float16 in the"),
        ("replay", "statehal_causal_conv1d answered None for a ConvRecurrent sub-pool of bfloat16 with a replay ring"),
        ("scales:per_token_head", "no store of fp8 or int8, which alone have scales (fix: claim one)"),
    ],
)
def test_a_claim_that_is_left_to_the_reference(tag: str, told_of: str) -> None:
    lines = told(target(narrow(tag)))
    assert all(line.startswith(f"it claims {tag!r}") for line in lines)
    assert any(told_of in line for line in lines), lines


def test_the_whole_text() -> None:
    lines = told(target(narrow("store:int8", kv=only(dtype={"bfloat16"}))))
    assert lines[0] == (
        "it claims 'store:int8', and its statehal_fused_kv_write answered None for an Attention sub-pool of int8 in "
        "the layout of 'mutant': kv.move, kv.rope_write, kv.write are done by reference (fix: take 'store:int8' out of "
        "capabilities, or answer)"
    )


def test_scales_are_asked_for_beside_each_store_that_has_some() -> None:
    served = only(dtype={"bfloat16", "int8"}, scales={None})
    lines = told(target(narrow("store:int8", "scales:per_token_head", kv=served)))
    assert len(lines) == 1
    assert "answered None for an Attention sub-pool of int8 with scales" in lines[0]


def test_layouts_of_a_backend_that_leaves_all_of_them_are_the_references() -> None:
    class NoLayouts(MutantBackend):
        statehal_pool_layout: Any = None
        statehal_conv_state_layout: Any = None

    assert told(target(NoLayouts())) == []
    forgotten = told(target(narrow(conv_layout=lambda made, request: None)))
    text = "its statehal_conv_state_layout answered None for every sub-pool that it claims (fix: return an answer, or"
    assert forgotten == [f"{text} take it out)"]


def test_an_overriding_plugin_may_serve_it() -> None:
    class Site:
        @hookimpl
        def statehal_fused_kv_write(self, request: Any) -> Any:
            return reference.statehal_fused_kv_write(request) if request.subpool.spec.dtype == "int8" else None

    plugins = {"reference": reference, "mutant": narrow("store:int8"), "site": Site()}
    assert told(Target("mutant", "cpu", discover(plugins))) == []


class Rows:
    """Some methods of the reference's writer."""

    graph_capturable = host_sync_free = True

    def __init__(self, made: Any, *names: str) -> None:
        vars(self).update({name: getattr(made, name) for name in names})


def test_a_writer_is_held_to_the_rows_that_it_was_made_for() -> None:
    """One writer for each kind of row; neither has a method that the other sub-pool needs."""

    def kinds(made: Any, request: Any) -> Any:
        latent = isinstance(request.subpool.spec, Latent)
        return Rows(made, "write_latent", "move") if latent else Rows(made, "write")

    judged = target(MutantBackend(kv=kinds))
    assert {"kv.write", "kv.write_latent", "kv.move"} <= judged.offers
    assert "kv.rope_write" not in judged.offers
    assert told(judged) == []


def test_a_method_for_rows_of_another_kind_is_no_offer() -> None:
    def attention(made: Any, request: Any) -> Any:
        return made if isinstance(request.subpool.spec, Attention) else None

    judged = target(MutantBackend(kv=attention))
    assert judged.providers["kv.write_latent"] == "reference"
    assert "kv.write" in judged.offers
