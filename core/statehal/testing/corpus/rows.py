"""Which kinds of row a spec keeps, written out from the spec's numbers."""

from dataclasses import dataclass
from typing import Any

from statehal.testing.corpus.arithmetic import product_of, up

Json = dict[str, Any]
Groups = tuple[tuple[int, ...], ...]
"""Of each stored layer, the model layer ids that use it."""

ITEMSIZE = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
}


@dataclass(frozen=True)
class Row:
    """``shape`` elements of ``dtype`` for each token (or slot) and stored layer."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layers: Groups

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return ITEMSIZE[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes a row."""
        return product_of(self.shape) * self.itemsize


def groups(spec: Json, only: list[int] | None = None) -> Groups:
    """Stored layers, each with those that share it, for all layers of a spec or some."""
    owners = spec["layers"] if only is None else only
    return tuple((owner, *(layer for layer, of in spec.get("shared", []) if of == owner)) for owner in owners)


def rows_of(spec: Json, layout: Json) -> list[Row]:
    """The rows of a spec, in the order in which they lie in a page."""
    every, dtype = groups(spec), spec["dtype"]
    extra = [
        Row(one["name"], tuple(one["row_shape"]), one["dtype"], groups(spec, one["layers"])) for one in spec["extra"]
    ]
    if spec["kind"] == "latent":
        return [Row("latent", (1, spec["kv_lora_rank"] + spec["qk_rope_head_dim"]), dtype, every), *extra]
    if spec["kind"] == "attention":
        heads, dim = spec["kv_heads"], spec["head_dim"]
        rows = [Row("k", (heads, dim), dtype, every), Row("v", (heads, spec["v_head_dim"] or dim), dtype, every)]
        if spec["scales"] == "per_token_head":
            rows += [Row("k_scale", (heads,), "float32", every), Row("v_scale", (heads,), "float32", every)]
        return rows + extra
    window = spec["width"] - 1 + spec["verify_tokens"] - 1
    channels = up(spec["channels"], layout["channel_multiple"])
    first = layout["window_order"] == "rows_first"
    rows = [Row("conv", (window, channels) if first else (channels, window), dtype, every)]
    if spec["state"] is not None:
        rows.append(Row("state", tuple(spec["state"]), spec["state_dtype"], every))
    return [*rows, *extra, Row("cursor", (1,), "int32", (tuple(spec["layers"]),))]
