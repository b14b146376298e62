"""Arguments of each KV write that fit together, to be spoiled one at a time."""

from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.spec import Latent
from statehal.testing.draws import layer_ids
from statehal.testing.kv.angles import LENGTH
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import Setting, attention, settings

METHODS = ("kv.write", "kv.rope_write", "kv.write_latent")
ANY_WRITE = " or ".join(METHODS)
"""What a check of all writes needs; it judges those that are offered."""

Q_HEADS = 5


@st.composite
def several(draw: DrawFn, tags: tuple[str, ...], *, latent: bool = False) -> Setting:
    """A setting of two tokens or more, so that one row for all of them does not fit.

    Args:
        tags: of storage dtypes.
    """
    dtype = draw(st.sampled_from(tags)).removeprefix("store:")
    widths = draw(st.sampled_from([8, 12])), draw(st.sampled_from([4, 6]))
    spec = Latent("kv", draw(layer_ids()), *widths, dtype) if latent else draw(attention((dtype,)))
    return draw(settings(spec, (2, 3, 5)))


def fitting(scene: Scene, method: str, dtype: torch.dtype) -> dict[str, Any]:
    """By name, what a method (``"kv.write"``) needs to store rows of ones at the scene's ids.

    Args:
        dtype: of the rows.
    """
    spec, count = scene.setting.spec, len(scene.setting.tokens)
    right: dict[str, Any] = {"layer": scene.setting.layer, "ids": scene.ids}
    if isinstance(spec, Latent):
        contents = ones(scene, count, spec.kv_lora_rank, dtype=dtype)
        return right | {"kv_c": contents, "k_pe": ones(scene, count, spec.qk_rope_head_dim, dtype=dtype)}
    right |= {
        "k": ones(scene, count, spec.kv_heads, spec.head_dim, dtype=dtype),
        "v": ones(scene, count, spec.kv_heads, spec.v_head_dim or spec.head_dim, dtype=dtype),
    }
    if method == "kv.write":
        return right
    q = ones(scene, count, Q_HEADS, spec.head_dim, dtype=dtype)
    return right | {"q": q, **turning(scene, spec.head_dim)}


def turning(scene: Scene, rope_dim: int) -> dict[str, Any]:
    """Positions ``[tokens]`` and a table for a rotation of that many elements."""
    positions = torch.arange(len(scene.setting.tokens))
    return {"positions": scene.target.on_device(positions), "cos_sin": ones(scene, LENGTH, rope_dim)}


def ones(scene: Scene, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Ones of that shape on the device."""
    return scene.target.on_device(torch.ones(shape).to(dtype))
