"""Specs, and the namespaces of them; without torch, so that a process that asks for a name starts fast."""

from typing import Any

from statehal.portability.grouping import Grouping
from statehal.portability.store import Namespace
from statehal.spec import Attention, ConvRecurrent, ExtraField, Spec

FULL = Attention("full", (0, 2), kv_heads=8, head_dim=128, dtype="float8_e4m3fn", window=128, shared=((3, 2), (1, 0)))
SHORT = ConvRecurrent("conv", (1,), 12, 3, "bfloat16", sections=(4, 8), section_heads=(1, 2), verify_tokens=4,
                      extra=(ExtraField("z", (2, 3), "int8", heads=2),))  # fmt: skip


def namespace(spec: Spec = FULL, **changed: Any) -> Namespace:
    sizes = {"object_tokens": 256, "layers": 2, "head_groups": 16}
    sizes |= {name: changed.pop(name) for name in list(changed) if name in sizes}
    given: dict[str, Any] = {
        "model": "acme/m\u00fc", "revision": "abc", "rope": {"dim": 64, "base": 10000.0}, "static_scales": {"k": 0.5},
        "hash_seed": "seed",
    }  # fmt: skip
    return Namespace.of(spec, grouping=Grouping.of([spec], **sizes), **(given | changed))
