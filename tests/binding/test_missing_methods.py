"""What a plugin does not offer: it is left to the next, refused in words, and never swallowed."""

from typing import Any

import pytest
import torch

from binding.binding_fakes import Backend, Override, Recorder, allocate, bind
from statehal.errors import Unsupported
from statehal.hookspecs import KVWriter
from statehal.layout import ConvStateLayout


def providers(bound: Any) -> dict[str, str]:
    return dict(bound.providers)


class Half(KVWriter):
    """As an author writes it: the contract as a base class, for its types, and some of its methods."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, *args: Any, **kwargs: Any) -> None:
        self.writes += 1


def test_what_is_inherited_from_the_protocol_is_not_offered() -> None:
    """Its body is ``...``: a write that it swallowed would be lost without a word."""
    half = Half()  # type: ignore[abstract]
    hal = bind({"half": Override(kv=half)})
    kv: Any = hal.kv(allocate(hal)["kv"])
    assert providers(kv) == {"write": "half", "write_latent": "reference", "move": "reference"}
    kv.write()
    assert half.writes == 1
    with pytest.raises(Unsupported, match="no plugin offers rope_write"):
        kv.rope_write()


@pytest.mark.parametrize("decline", [None, "absent"])
def test_a_method_that_is_none_is_left_to_the_next(decline: str | None) -> None:
    site = Recorder("site", "decode")
    if decline is None:
        site.prefill = None  # type: ignore[attr-defined]
    hal = bind({"site": Override(conv=site), "silent": Override()})
    found = providers(hal.conv(allocate(hal)["conv"]))
    assert (found["decode"], found["prefill"]) == ("site", "reference")


def test_what_nobody_offers_says_who_was_asked() -> None:
    plugins = {"site": Override(kv=Recorder("site", "write")), "chip": Backend("chip")}
    hal = bind(plugins)
    pool = allocate(hal)
    text = (
        r"no plugin offers rope_write: statehal_fused_kv_write was asked of site, chip, reference \(fix: install one\)"
    )
    with pytest.raises(Unsupported, match=text):
        hal.kv(pool["kv"]).rope_write(*[None] * 7)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="no plugin offers verify: statehal_causal_conv1d was asked of site, chip"):
        hal.conv(pool["conv"]).verify(0, torch.zeros(1, 3), None)  # type: ignore[arg-type]


WHOLE = ("prepare", "prefill", "decode", "verify", "commit", "copy_slots", "zero_slots", "read_state")


def test_the_reference_may_refuse_what_a_plugin_offers_whole() -> None:
    """It has neither operators for torch.compile nor the rollback protocol; that must not stop who has."""
    rollback = ConvStateLayout(protocol="rollback")
    chip = Backend("chip", conv=Recorder("chip", *WHOLE), kv=Recorder("chip", "write"), conv_layout=rollback)
    for compile_safe in (False, True):
        hal = bind({"chip": chip}, compile_safe=compile_safe)
        pool = allocate(hal)
        conv: Any = hal.conv(pool["conv"])
        assert conv.verify() == conv.decode() == "chip"
        assert set(providers(conv).values()) == {"chip"}
    kv: Any = hal.kv(pool["kv"])
    assert kv.write() == "chip"
    with pytest.raises(Unsupported) as caught:
        kv.move()
    text = "no plugin offers move: statehal_fused_kv_write was asked of chip, reference and the reference refused: "
    assert str(caught.value).startswith(text + "the reference backend has no torch.library forms")


def test_a_refusal_of_the_chosen_backend_is_not_passed_over() -> None:
    def refuse(request: Any) -> None:
        raise Unsupported("chip has no kernel for this sub-pool")

    hal = bind({"chip": Backend("chip", kv=refuse), "site": Override(kv=Recorder("site", "write"))})
    with pytest.raises(Unsupported, match="chip has no kernel for this sub-pool"):
        hal.kv(allocate(hal)["kv"])


def test_compile_safe_with_the_reference_alone() -> None:
    hal = bind(compile_safe=True)
    pool = allocate(hal)
    for call in (lambda: hal.kv(pool["kv"]), lambda: hal.conv(pool["conv"])):
        with pytest.raises(Unsupported, match=r"no torch.library forms.*\(fix: bind with compile_safe=False and keep"):
            call()
