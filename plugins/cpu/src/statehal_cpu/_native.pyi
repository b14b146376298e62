from collections.abc import Callable

from torch import Tensor

from statehal.ids import KernelIds

def watch(*tensors: Tensor | None) -> Callable[[], bool]: ...
def isa() -> str: ...
def usable_isas() -> list[str]: ...
def use_isa(name: str) -> None: ...

SILU_RATE: float

FieldNumbers = tuple[int, int, int]
"""Address in slot 0, bytes from slot to slot, bytes of a slot."""

Snapshots = tuple[Tensor, Tensor, KernelIds]
"""Sequences, ends of tokens, and slots, whose ids are given beside it."""

class Conv:
    """The conv operations of one sub-pool; what ends in ``_fits`` says whether tensors plainly fit that operation."""

    def __init__(
        self, window: Tensor, width: int, drafts: int, rows: int, channels: int, count: int, cursor: FieldNumbers,
        pages: list[FieldNumbers],
    ) -> None: ...  # fmt: skip
    def add_layer(self, window: FieldNumbers, recurrent: list[FieldNumbers], replays: list[FieldNumbers]) -> None: ...
    def decode_fits(self, x: Tensor, ids: Tensor, out: Tensor | None) -> bool: ...
    def decode(
        self, layer: int, x: Tensor, out: Tensor, taps: Tensor, silu: bool, ids: Tensor, threads: int
    ) -> None: ...
    def verify_fits(
        self, x: Tensor, ids: Tensor, starts: Tensor | None, parents: Tensor | None, out: Tensor | None
    ) -> bool: ...
    def verify(
        self, layer: int, x: Tensor, out: Tensor, taps: Tensor, silu: bool, ids: Tensor, starts: Tensor | None,
        parents: Tensor | None, threads: int,
    ) -> None: ...  # fmt: skip
    def prefill_fits(
        self, x: Tensor, starts: Tensor, ids: Tensor, has: Tensor | None, source: Tensor, snapshots: Snapshots | None,
        saved: Tensor | None, out: Tensor | None,
    ) -> bool: ...  # fmt: skip
    def prefill(
        self, layer: int, x: Tensor, out: Tensor, taps: Tensor, silu: bool, starts: Tensor, ids: Tensor,
        has: Tensor | None, source: Tensor, snapshots: Snapshots | None, saved: Tensor | None, threads: int,
    ) -> None: ...  # fmt: skip
    def commit(
        self, ids: Tensor, accepted: Tensor, path: Tensor | None, states: Tensor | None, threads: int
    ) -> None: ...
    def track(
        self, ids: Tensor, accepted: Tensor, path: Tensor | None, states: Tensor | None, targets: Tensor,
        counts: Tensor, threads: int,
    ) -> None: ...  # fmt: skip
    def copy_slots(self, source: Tensor, target: Tensor, threads: int) -> None: ...
    def zero_slots(self, ids: Tensor, threads: int) -> None: ...
    def read_state(self, ids: Tensor, out: Tensor) -> None: ...

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
