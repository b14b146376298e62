from torch import Tensor

def isa() -> str: ...
def usable_isas() -> list[str]: ...
def use_isa(name: str) -> None: ...

SILU_RATE: float

FieldNumbers = tuple[int, int, int]
"""Address in slot 0, bytes from slot to slot, bytes of a slot."""

class Conv:
    """The conv operations of one sub-pool; ``native/conv/bind.cpp``. Tensors are addresses, strides count elements."""

    def __init__(
        self, dtype: int, width: int, drafts: int, rows: int, channels: int, count: int, cursor: FieldNumbers,
        pages: list[FieldNumbers], /,
    ) -> None: ...  # fmt: skip
    def add_layer(
        self, window: FieldNumbers, recurrent: list[FieldNumbers], replays: list[FieldNumbers], /
    ) -> None: ...
    def decode(
        self, layer: int, dtype: int, x: int, s_x: int, out: int, s_out: int, requests: int, taps: int, silu: bool,
        ids: int, s_ids: int, wide: bool, threads: int, /,
    ) -> None: ...  # fmt: skip
    def verify(
        self, layer: int, dtype: int, x: int, s_x: int, out: int, s_out: int, tokens: int, taps: int, silu: bool,
        ids: int, s_ids: int, wide: bool, requests: int, starts: int, s_starts: int, wide_starts: bool,
        parents: int, s_parents: int, wide_parents: bool, threads: int, /,
    ) -> None: ...  # fmt: skip
    def prefill(
        self, layer: int, dtype: int, x: int, s_x: int, out: int, s_out: int, tokens: int, taps: int, silu: bool,
        ids: int, s_ids: int, wide: bool, count: int, starts: int, s_starts: int, wide_starts: bool,
        source: int, s_source: int, wide_source: bool, forked: bool, has: int, s_has: int,
        snapshots: list[tuple[int, int, bool]], saved: int, threads: int, /,
    ) -> None: ...  # fmt: skip
    def commit(
        self, ids: int, s_ids: int, wide: bool, requests: int, accepted: int, s_accepted: int, wide_accepted: bool,
        path: int, wide_path: bool, states: int, wide_states: bool, threads: int, /,
    ) -> None: ...  # fmt: skip
    def track(
        self, ids: int, s_ids: int, wide: bool, requests: int, accepted: int, s_accepted: int, wide_accepted: bool,
        path: int, wide_path: bool, states: int, wide_states: bool, targets: int, s_targets: int, wide_targets: bool,
        counts: int, s_counts: int, wide_counts: bool, threads: int, /,
    ) -> None: ...  # fmt: skip
    def copy_slots(
        self, source: int, s_source: int, wide_source: bool, target: int, s_target: int, wide_target: bool, pairs: int,
        threads: int, /,
    ) -> None: ...  # fmt: skip
    def zero_slots(self, ids: int, s_ids: int, wide: bool, count: int, threads: int, /) -> None: ...
    def read_state(self, ids: int, s_ids: int, wide: bool, count: int, out: int, /) -> None: ...

class Rows:
    """Where the rows of one field lie, in bytes; ``native/kv/calls.hpp``."""

    def __init__(
        self, first: int, count: int, step: int, places: list[int], run: int, offsets: list[int], heads: int, size: int
    ) -> None: ...

class Layer:
    """One layer of a field: its rows in a view of the pool, and the layer of its scales."""

    def __init__(self, rows: Rows, view: Tensor, form: int, scales: Layer | None) -> None: ...

def kv_write(
    keys: Layer, values: Layer, ids: tuple[Tensor, ...], k: Tensor, v: Tensor, k_scale: Tensor | float | None,
    v_scale: Tensor | float | None, threads: int,
) -> bool: ...  # fmt: skip
def kv_rope_write(
    checked: bool, keys: Layer, values: Layer, ids: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor, q_out: Tensor,
    k_out: Tensor | None, positions: Tensor, cos_sin: Tensor, sections: tuple[int, ...] | None, interleaved: bool,
    q_norm: Tensor | None, k_norm: Tensor | None, eps: float, k_scale: Tensor | float | None,
    v_scale: Tensor | float | None, threads: int,
) -> bool: ...  # fmt: skip
def kv_write_latent(
    checked: bool, rows: Layer, rank: int, ids: tuple[Tensor, ...], content: Tensor, key: Tensor, norm: Tensor | None,
    eps: float, positions: Tensor | None, cos_sin: Tensor | None, interleaved: bool, scale: Tensor | float | None,
    threads: int,
) -> bool: ...  # fmt: skip
def kv_move(
    layers: list[Layer], to: tuple[Tensor, ...], source: tuple[Tensor, ...], tokens: int, threads: int
) -> None: ...
def translate(
    ids: Tensor, table: Tensor | None, page: int, outs: tuple[Tensor, ...], multipliers: tuple[int, ...], threads: int
) -> None: ...
def update_table(table: Tensor, keys: Tensor, values: Tensor) -> None: ...
def gather(view: Tensor, ids: Tensor, rows: Tensor, threads: int) -> None: ...
def scatter(view: Tensor, ids: Tensor, rows: Tensor, first: int, threads: int) -> None: ...
def first_outside(ids: Tensor, count: int) -> int: ...
def copy_pages(views: tuple[Tensor, ...], source: Tensor, to: Tensor, threads: int) -> bool: ...
def zero_pages(views: tuple[Tensor, ...], pages: Tensor, threads: int) -> bool: ...
