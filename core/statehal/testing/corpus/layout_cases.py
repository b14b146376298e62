"""Which layout vectors there are."""

from collections.abc import Iterator

from statehal.testing.corpus.layout_vectors import vector
from statehal.testing.corpus.rows import ITEMSIZE, Json

PAGE_SIZES = (1, 3, 5, 16, 128)
ORDERS = (
    ("page_major", "NHD"),
    ("page_major", "HND"),
    ("token_major", None),
    ("layer_major", "NHD"),
    ("layer_major", "HND"),
    ("nz", None),
)
PLACEMENTS: tuple[Json, ...] = (
    {"pages": 2, "per_slab": 0, "widen": None, "region": 0},  # as the constructor made it
    {"pages": 3, "per_slab": 0, "widen": 0, "region": 0},  # alone in its pool
    {"pages": 6, "per_slab": 2, "widen": 1, "region": 1},  # in slabs that others share
    {"pages": 9, "per_slab": 3, "widen": 5, "region": 7},
    {"pages": 4, "per_slab": 1, "widen": 0, "region": 3},
)
FORMS = (["row"], ["block"], ["row", "block"], ["page"])


def attention(layers: list[int], kv_heads: int, head_dim: int, dtype: str, **more: object) -> Json:
    """A spec of K and V rows."""
    made: Json = {"kind": "attention", "layers": layers, "kv_heads": kv_heads, "head_dim": head_dim, "dtype": dtype}
    return made | {"v_head_dim": None, "scales": None, "shared": [], "extra": []} | more


def latent(layers: list[int], rank: int, rope: int, dtype: str, **more: object) -> Json:
    """A spec of latent rows."""
    made: Json = {"kind": "latent", "layers": layers, "kv_lora_rank": rank, "qk_rope_head_dim": rope, "dtype": dtype}
    return made | {"shared": [], "extra": []} | more


def extra(name: str, row_shape: list[int], dtype: str, layers: list[int] | None = None) -> Json:
    """A further row."""
    return {"name": name, "row_shape": row_shape, "dtype": dtype, "layers": layers}


MODELS: dict[str, Json] = {
    "two layers": attention([0, 1], 2, 4, "bfloat16"),
    "one layer": attention([7], 1, 8, "float32"),
    "grouped heads": attention(list(range(0, 24, 2)), 8, 64, "bfloat16"),
    "K wider than V": attention([0, 1, 2, 3, 4], 2, 192, "bfloat16", v_head_dim=128),
    "fp8 with scales": attention([1, 3, 5], 8, 64, "float8_e4m3fn", scales="per_token_head"),
    "shared layers": attention([2, 5], 3, 16, "float16", shared=[[100, 2], [101, 5], [102, 5]]),
    "rows of some layers": attention(
        [0, 1, 2, 3],
        2,
        32,
        "int8",
        shared=[[9, 3]],
        extra=[
            extra("indexer", [5], "uint8"),
            extra("marks", [2, 3], "int32", [1, 3]),
            extra("step", [1], "int64", [0]),
        ],
    ),
    "61 layers": attention(list(range(61)), 1, 16, "bfloat16", v_head_dim=32),
    "latent": latent(list(range(61)), 512, 64, "bfloat16"),
    "latent with an indexer": latent([3, 4, 5], 512, 64, "float8_e5m2", extra=[extra("indexer", [132], "uint8")]),
    "one small latent": latent([9], 3, 2, "float16"),
    "fnuz": attention([0, 1], 4, 32, "float8_e4m3fnuz", v_head_dim=64, extra=[extra("w", [2, 32], "float8_e5m2fnuz")]),
}


def token_vectors() -> Iterator[Json]:
    """Each model in each layout that takes it, at three of the page sizes."""
    number = 0
    for model, spec in MODELS.items():
        for constructor, order in ORDERS:
            if constructor == "nz" and not cut_by(32, spec):
                continue
            for turn in range(3):
                number += 1
                page_size = PAGE_SIZES[(2 * turn + (number - 1) // 3) % 5]
                forms = ["row"] if constructor == "token_major" else FORMS[number % 4]
                layout: Json = {"constructor": constructor, "page_size": page_size, "forms": forms}
                if order:
                    layout["order"] = order
                if constructor != "layer_major":
                    layout["align"] = 512 if constructor == "nz" and turn else (1, 16, 24, 1)[number % 4]
                title = f"{constructor} {order + ' ' if order else ''}ps={page_size}: {model}"
                yield vector(title, spec, layout, PLACEMENTS[number % 5])


def cut_by(size: int, spec: Json) -> bool:
    """Whether all rows can be cut into pieces of that many bytes."""
    if any(one["row_shape"][-1] * ITEMSIZE[one["dtype"]] % size for one in spec["extra"]):
        return False
    if spec["kind"] == "latent":
        widths = [spec["kv_lora_rank"] + spec["qk_rope_head_dim"]]
    else:
        widths = [spec["head_dim"], spec["v_head_dim"] or spec["head_dim"]]
    return all(width * ITEMSIZE[spec["dtype"]] % size == 0 for width in widths)


def packed_vectors() -> Iterator[Json]:
    """A shuffled V cache ``[heads, ps/x, dim, x]`` in 16-byte pieces: two digits a place. No constructor makes it."""
    for number, (page_size, dtype) in enumerate((p, d) for p in (16, 128) for d in ("float32", "bfloat16", "int8")):
        spec = attention([4, 6], 2, 32, dtype, shared=[[8, 6]])
        layout = {"constructor": "x_packed", "page_size": page_size, "forms": ["block"], "align": (1, 16)[number % 2]}
        yield vector(f"x_packed ps={page_size}: {dtype}", spec, layout, PLACEMENTS[number % 5])


def far_vectors() -> Iterator[Json]:
    """Addresses past 2**32 bytes, and ids close to 2**31."""
    spec = attention(list(range(12)), 8, 128, "bfloat16")
    for constructor, order in ORDERS:
        page_size = 16
        # row ids from page to page are 384 apart (page_major NHD), 3,072 (HND) or 24,576 (nz): the most that fit
        pages = {"page_major NHD": 5_592_406, "page_major HND": 699_051, "nz": 87_382, "token_major": 99_991}
        title = f"{constructor} {order}" if order else constructor
        layout: Json = {"constructor": constructor, "page_size": page_size, "forms": ["row"]}
        if order:
            layout["order"] = order
        if constructor != "layer_major":
            layout["align"] = 1
        placement = {"pages": pages.get(title, 1_000_003), "per_slab": 0, "widen": 0, "region": 0}
        yield vector(f"{title} far", spec, layout, placement)


def conv_vectors() -> Iterator[Json]:
    """Slots of every protocol, order and padding; widths and drafts take turns."""
    number = 0
    for protocol in ("ring", "offset", "rollback"):
        for window_order in ("rows_first", "channels_first"):
            for multiple in (1, 4, 8):
                for state in (None, [2, 3], [4, 16, 8]):
                    number += 1
                    width, drafts = 2 + number % 7, 1 + number % 4
                    rows = width - 1 + drafts - 1
                    replay = protocol == "ring" and number % 2 == 0
                    spec: Json = {
                        "kind": "conv_recurrent",
                        "layers": ([3], [0, 2, 5], list(range(20, 56)))[number // 2 % 3],
                        "channels": (3, 6, 17, 8)[number % 4],
                        "width": width,
                        "dtype": ("bfloat16", "float32", "float16")[number // 3 % 3],
                        "verify_tokens": drafts,
                        "state": state,
                        "state_dtype": ("float32", "bfloat16")[number % 2],
                        "extra": [extra("replay", [rows, 2], "float16")] if replay else [],
                    }
                    layout = {
                        "constructor": "conv_window",
                        "page_size": 1,
                        "window_order": window_order,
                        "channel_multiple": multiple,
                        "protocol": protocol,
                        "forms": (["page"], ["row"], ["block"])[number % 3],
                        "align": (1, 16, 128)[number // 4 % 3],
                    }
                    title = f"conv_window {protocol} {window_order} x{multiple}: W={width} D={drafts}"
                    yield vector(title, spec, layout, PLACEMENTS[number % 5])


def every() -> list[Json]:
    """All layout vectors, in order."""
    return [*token_vectors(), *packed_vectors(), *far_vectors(), *conv_vectors()]
