"""Faults of memory operations."""

from collections.abc import Callable
from typing import Any

import torch

from conformance.mutant import Mutant, MutantBackend


def _method(name: str, wrap: Callable[[Any], Any]) -> Callable[[], MutantBackend]:
    """A backend, one memory operation of which is what ``wrap`` makes of the right one."""

    def change(made: Any, request: Any) -> Any:
        setattr(made, name, wrap(getattr(made, name)))
        return made

    return lambda: MutantBackend(memory=change)


def _ids(change: Callable[[torch.Tensor, Any, int, str], torch.Tensor]) -> Callable[[], MutantBackend]:
    """A translation of ids that are changed first."""

    def wrap(right: Any) -> Any:
        def mutated(ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None:
            right(change(ids, table, page_size, unit), table, page_size, multipliers, outs, unit)

        return mutated

    return _method("translate", wrap)


def _size(page_size: int, unit: str) -> int:
    return page_size if unit == "tokens" else 1


def _late(ids: torch.Tensor, table: Any, page_size: int, unit: str) -> torch.Tensor:
    """The last token of a page is taken for the first of the next."""
    last = ids % page_size == page_size - 1
    return torch.where(last & (ids >= 0), ids + 1, ids) if unit == "tokens" and page_size > 1 else ids


def _from_the_end(ids: torch.Tensor, table: Any, page_size: int, unit: str) -> torch.Tensor:
    """Negative ids count from the end of the table, as they do in Python."""
    end = 0 if table is None else (table.shape[0] - 1) * _size(page_size, unit)
    return torch.where(ids < 0, ids + end, ids)


def _dense(ids: torch.Tensor, table: Any, page_size: int, unit: str) -> torch.Tensor:
    """Ids are read one after another, whatever lies between them."""
    return ids.as_strided(ids.shape, torch.empty(ids.shape, device="meta").stride())


def _unmapped_is_itself(right: Any) -> Any:
    def mutated(ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None:
        if table is not None:
            table = torch.where(table == 0, torch.arange(table.shape[0]), table)
            table[-1] = 0
        right(ids, table, page_size, multipliers, outs, unit)

    return mutated


def _pages_as_tokens(right: Any) -> Any:
    def mutated(ids: Any, table: Any, page_size: int, multipliers: Any, outs: Any, unit: Any) -> None:
        wide = tuple(one * page_size for one in multipliers) if unit == "pages" else multipliers
        right(ids, table, page_size, wide, outs, unit)

    return mutated


def _all_but_the_last(right: Any) -> Any:
    return lambda table, keys, values: right(table, keys[:-1], values[:-1])


def _clamped(right: Any) -> Any:
    return lambda view, ids, *, out=None: right(view, ids.clamp(max=view.shape[0] - 1), out=out)


def _by_column(right: Any) -> Any:
    return lambda view, ids, *, out=None: right(view, ids.t().reshape(ids.shape) if ids.dim() == 2 else ids, out=out)


def _below_first(right: Any) -> Any:
    return lambda view, ids, rows, *, first: right(view, ids, rows, first=0)


def _one_by_one(right: Any) -> Any:
    def mutated(views: Any, src: Any, dst: Any) -> None:
        for n in range(src.shape[0]):
            right(views, src[n : n + 1], dst[n : n + 1])

    return mutated


def _whole_words(right: Any) -> Any:
    """The tail of a page that is no multiple of four bytes stays behind."""
    return lambda views, src, dst: right(tuple(view[..., : view.shape[2] // 4 * 4] for view in views), src, dst)


def _and_the_next(right: Any) -> Any:
    def mutated(views: Any, pages: Any) -> None:
        right(views, pages)
        right(views, (pages + 1).clamp(max=views[0].shape[1] - 1))

    return mutated


def _together(right: Any) -> Any:
    """Rows are written into out as if nothing lay between them."""

    def mutated(view: Any, ids: Any, *, out: Any = None) -> Any:
        rows = right(view, ids)
        if out is None:
            return rows
        out.as_strided(rows.shape, rows.stride()).copy_(rows)
        return out

    return mutated


def _one_block(right: Any) -> Any:
    block = right(1 << 16)
    return lambda nbytes: block[:nbytes]


def _deferred(made: Any, request: Any) -> Any:
    """Work is done when the next is given, and no event knows of it."""
    zero, due = made.zero_pages, list[Any]()

    def mutated(views: Any, pages: Any) -> None:
        for work in due:
            zero(*work)
        due[:] = [(views, pages)]

    made.zero_pages = mutated
    return made


OPS = "memory_ops/"
TRANSLATE = OPS + "translate_follows_the_table"
MUTANTS = [
    Mutant("page maths off by one", TRANSLATE, _ids(_late)),
    Mutant("strided ids read as if they were dense", TRANSLATE, _ids(_dense)),
    Mutant("negative ids that wrap", TRANSLATE, _ids(_from_the_end)),
    Mutant("an unmapped id that is not sent to the sink", TRANSLATE, _method("translate", _unmapped_is_itself)),
    Mutant(
        "an update of a table that drops its last entry",
        OPS + "update_table_sets_these_entries_alone",
        _method("update_table", _all_but_the_last),
    ),
    Mutant(
        "ids of pages multiplied as those of tokens",
        OPS + "kernel_ids_of_a_pool_index_their_own_width",
        _method("translate", _pages_as_tokens),
    ),
    Mutant(
        "gather reads the last row for ids past the view",
        OPS + "gather_reads_rows_and_zeros_for_padding",
        _method("gather", _clamped),
    ),
    Mutant(
        "gather fills out as if its rows lay together",
        OPS + "gather_reads_rows_and_zeros_for_padding",
        _method("gather", _together),
    ),
    Mutant(
        "gather takes the ids of a batch by column",
        OPS + "gather_reads_rows_and_zeros_for_padding",
        _method("gather", _by_column),
    ),
    Mutant("scatter writes below first", OPS + "scatter_writes_these_rows_alone", _method("scatter", _below_first)),
    Mutant(
        "pages copied one by one",
        OPS + "copy_pages_reads_all_before_it_writes_any",
        _method("copy_pages", _one_by_one),
    ),
    Mutant(
        "the tail bytes of a page lost",
        OPS + "copy_pages_reads_all_before_it_writes_any",
        _method("copy_pages", _whole_words),
    ),
    Mutant(
        "one page too many zeroed", OPS + "zero_pages_zeroes_these_bytes_alone", _method("zero_pages", _and_the_next)
    ),
    Mutant(
        "one block of pinned memory for all",
        OPS + "alloc_pinned_gives_host_memory_of_its_own",
        _method("alloc_pinned", _one_block),
    ),
    Mutant(
        "an event that does not wait for the work before it",
        OPS + "waiting_for_an_event_waits_for_the_work_before_it",
        lambda: MutantBackend(memory=_deferred),
    ),
]
