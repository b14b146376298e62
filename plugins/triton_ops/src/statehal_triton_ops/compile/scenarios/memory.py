"""Translation, pages, rows."""

from collections.abc import Callable, Iterator
from itertools import product

from torch import Tensor

from statehal.layout import page_major
from statehal.spec import Attention
from statehal_triton_ops.compile.scenario import Scenario, pool_of, tensor
from statehal_triton_ops.memory_ops import TritonMemoryOps

TABLE = 1 << 20
COPIES = (1, 4, 16, 64, 256, 1024, 4096, 5000)
"""Pages copied at once: every power of four has a tile of its own; past 4096 they go through memory."""


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    yield from _translation()
    yield from _pages()
    yield from _rows()


def _ops() -> TritonMemoryOps:
    return TritonMemoryOps("cpu")  # events and pinned memory are not launched


def _translation() -> Iterator[Scenario]:
    for dtype, shape, outs, page_size, table in product(
        ("int32", "int64"), ((4096,), (64, 512)), (1, 2, 3), (1, 16, 48), (False, True)
    ):
        name = f"memory.translate {dtype} {list(shape)} {outs} outs page {page_size}{' table' * table}"
        quick = outs == 1 and page_size == 16 and table and len(shape) == 1
        yield _translate(name, dtype, shape, outs, page_size, table, quick)
    for dtype in ("int32", "int64"):
        yield _translate(f"memory.translate {dtype} a slice", dtype, (64, 512), 2, 16, True, False, columns=640)

    def update(family: str) -> None:
        pages = tensor(256, dtype="int64")
        _ops().update_table(tensor(TABLE + 1, dtype="int64"), pages, pages)

    yield Scenario("memory.update_table", update, quick=True)


def _translate(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    outs: int,
    page_size: int,
    table: bool,
    quick: bool,
    columns: int | None = None,
) -> Scenario:
    def run(family: str) -> None:
        ids = tensor(*shape, dtype=dtype) if columns is None else tensor(shape[0], columns, dtype=dtype)[:, : shape[1]]
        to = tuple(tensor(*shape, dtype=dtype) for _ in range(outs))
        pages = tensor(TABLE + 1, dtype="int64") if table else None
        multipliers = tuple(80 + 16 * n for n in range(outs))
        _ops().translate(ids, pages, page_size, multipliers, to, "tokens")
        _ops().translate(ids, pages, page_size, multipliers, to, "pages")

    return Scenario(name, run, quick)


def _view(ranges: int, page_bytes: int, dense: int) -> Tensor:
    """Pages of a pool past 2 GiB: ``dense`` bytes of each ``page_bytes``."""
    pages = (4 << 30) // page_bytes // ranges
    return tensor(ranges, pages, page_bytes, dtype="uint8")[:, :, :dense]


PAGES = ((1, 1 << 18, 1 << 18), (8, 1 << 15, 1 << 15), (1, 1 << 16, 33024), (1, 2112, 2112))


def _pages() -> Iterator[Scenario]:
    for ranges, page_bytes, dense in PAGES:
        label = f"{ranges} x {dense} of {page_bytes} bytes"
        yield Scenario(f"memory.zero_pages {label}", _zero(ranges, page_bytes, dense), ranges == 8)
        for count in COPIES:
            quick = ranges == 8 and count in (16, 5000)
            yield Scenario(f"memory.copy_pages {count} of {label}", _copy(ranges, page_bytes, dense, count), quick)


def _zero(ranges: int, page_bytes: int, dense: int) -> Callable[[str], None]:
    return lambda family: _ops().zero_pages((_view(ranges, page_bytes, dense),), tensor(64, dtype="int64"))


def _copy(ranges: int, page_bytes: int, dense: int, count: int) -> Callable[[str], None]:
    def run(family: str) -> None:
        pages = tensor(count, dtype="int64")
        _ops().copy_pages((_view(ranges, page_bytes, dense),), pages, pages)

    return run


def _rows() -> Iterator[Scenario]:
    for dtype, head_dim, order, ids in product(
        ("bfloat16", "float32", "float8_e4m3fn"), (64, 80, 96, 128, 192, 256), ("NHD", "HND"), ("int32", "int64")
    ):
        quick = dtype == "bfloat16" and head_dim == 128 and order == "NHD"
        yield _row_access(dtype, head_dim, order, ids, quick)


def _row_access(dtype: str, head_dim: int, order: str, ids: str, quick: bool) -> Scenario:
    def run(family: str) -> None:
        spec = Attention("full", layers=(0, 1), kv_heads=8, head_dim=head_dim, dtype=dtype)
        view = pool_of([spec], layouts=page_major)["full"].view("k", 1)
        if order == "HND":  # heads lie apart, as where each has a pool of its own
            view = tensor(8, view.shape[0], head_dim, dtype=dtype).transpose(0, 1)
        rows = tensor(1024, *view.shape[1:], dtype=view.dtype)
        found = tensor(1024, dtype=ids)
        _ops().gather(view, found, out=rows)
        batch = tensor(4, view.shape[1], 256, head_dim, dtype=dtype)  # as attention wants them: heads before tokens
        _ops().gather(view, found.view(4, 256), out=batch.transpose(1, 2))
        _ops().scatter(view, found, rows, first=16)

    return Scenario(f"memory.rows {dtype} 8x{head_dim} {order} ids {ids}", run, quick)
