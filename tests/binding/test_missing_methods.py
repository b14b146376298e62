"""What a plugin does not offer: it is left to the next, refused in words, and never swallowed."""

from typing import Any

import pytest
import torch

from binding.binding_fakes import Backend, Override, Recorder, allocate, bind
from statehal.binding.merge import merge
from statehal.errors import Unsupported
from statehal.hookspecs import KVWriter
from statehal.registry import Provider
from statehal.spec import ConvRecurrent


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
    others = dict.fromkeys(("rope_write", "write_latent", "move"), "reference")
    assert providers(kv) == {"write": "half", **others}
    kv.write()
    assert half.writes == 1


@pytest.mark.parametrize("decline", [None, "absent"])
def test_a_method_that_is_none_is_left_to_the_next(decline: str | None) -> None:
    site = Recorder("site", "decode")
    if decline is None:
        site.prefill = None  # type: ignore[attr-defined]
    hal = bind({"site": Override(conv=site), "silent": Override()})
    found = providers(hal.conv(allocate(hal)["conv"]))
    assert (found["decode"], found["prefill"]) == ("site", "reference")


def test_what_nobody_offers_says_who_was_asked() -> None:
    asked = [Provider(name, lambda request: Recorder("", "write")) for name in ("site", "chip")]
    bound: Any = merge("statehal_fused_kv_write", "kv", asked, None, None)
    text = r"no plugin offers rope_write: statehal_fused_kv_write was asked of site, chip \(fix: install one\)"
    with pytest.raises(Unsupported, match=text):
        bound.rope_write(*[None] * 7)
    with pytest.raises(Unsupported, match="no plugin offers move: statehal_fused_kv_write was asked of site, chip"):
        bound.move()


FP8 = ConvRecurrent("conv", (0,), 3, 4, "float8_e4m3fn")
WHOLE = ("prepare", "prefill", "decode", "verify", "commit", "copy_slots", "zero_slots", "read_state")


@pytest.mark.parametrize("compile_safe", [False, True])
def test_the_reference_may_refuse_what_a_plugin_offers(compile_safe: bool) -> None:
    """It has no windows of one byte an element; that must not stop who has."""
    whole = bind({"chip": Backend("chip", conv=Recorder("chip", *WHOLE))}, compile_safe=compile_safe)
    conv = whole.conv(allocate(whole, FP8)["conv"])
    assert set(providers(conv).values()) == {"chip"}
    part = bind({"chip": Backend("chip", conv=Recorder("chip", "decode"))}, compile_safe=compile_safe)
    conv = part.conv(allocate(part, FP8)["conv"])
    assert providers(conv) == {"decode": "chip"}
    with pytest.raises(Unsupported) as caught:
        conv.verify(0, torch.zeros(1, 3), None)  # type: ignore[arg-type]
    text = "no plugin offers verify: statehal_causal_conv1d was asked of chip, reference and the reference refused: "
    assert str(caught.value).startswith(text + "the reference backend does not offer conv windows of float8_e4m3fn")


def test_a_refusal_of_the_chosen_backend_is_not_passed_over() -> None:
    def refuse(request: Any) -> None:
        raise Unsupported("chip has no kernel for this sub-pool")

    hal = bind({"chip": Backend("chip", kv=refuse), "site": Override(kv=Recorder("site", "write"))})
    with pytest.raises(Unsupported, match="chip has no kernel for this sub-pool"):
        hal.kv(allocate(hal)["kv"])
