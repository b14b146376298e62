"""The methods of the memory operations that every pool on a device shares."""

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class MemoryOps(Protocol):
    """Copies, zeroing and id translation of a device.

    Views of pages are uint8 tensors ``[ranges, num_pages, bytes]``: the byte ranges that make up a page, strided over
    the pool's buffer.

    Attributes:
        graph_capturable: ``translate``, ``update_table``, ``copy_pages`` and ``zero_pages`` may be captured in a graph.
        host_sync_free: these never wait for the device.
    """

    graph_capturable: bool
    host_sync_free: bool

    def translate(
        self,
        ids: "Tensor",
        table: "Tensor | None",
        page_size: int,
        multipliers: tuple[int, ...],
        outs: "tuple[Tensor, ...]",
        unit: Literal["tokens", "pages"],
    ) -> None:
        """Translate virtual ids for every width class and form in use, in one pass.

        ``outs[i][j] = table[ids[j] // page_size] * multipliers[i] + ids[j] % page_size`` for tokens and
        ``table[ids[j]] * multipliers[i]`` for pages. A negative, out-of-range or unmapped id counts as mapped to page
        0, the sink.

        Args:
            ids: int32 or int64, any shape and strides.
            table: int64 ``[num_virtual_pages + 1]``; its last entry is 0. ``None``: virtual is physical.
            page_size: tokens a page.
            multipliers: one for each of ``outs``.
            outs: int32 or int64, of the shape of ``ids``; written. ``outs[0]`` may be ``ids`` where it is the only one.
            unit: what the ids count.
        """
        ...

    def update_table(self, table: "Tensor", virtual_pages: "Tensor", physical_pages: "Tensor") -> None:
        """Set ``table[virtual_pages[i]] = physical_pages[i]``; no virtual page twice."""
        ...

    def copy_pages(self, views: "tuple[Tensor, ...]", src: "Tensor", dst: "Tensor") -> None:
        """Copy whole pages ``src[i]`` to ``dst[i]`` in every view, as if all were read before any is written.

        Args:
            views: uint8 ``[ranges, num_pages, bytes]``; written at ``dst``.
            src: int64 ``[n]``, physical pages.
            dst: int64 ``[n]``, no page twice.
        """
        ...

    def zero_pages(self, views: "tuple[Tensor, ...]", pages: "Tensor") -> None:
        """Zero the bytes of physical ``pages`` (int64 ``[n]``) in every view, and no others."""
        ...

    def gather(self, view: "Tensor", ids: "Tensor", *, out: "Tensor | None" = None) -> "Tensor":
        """Read rows of a strided view.

        Args:
            view: ``[rows, *row_shape]``.
            ids: integers ``[n]`` or ``[batch, n]``; a negative id and one past the view give a zero row.
            out: ``[*ids.shape, *row_shape]``, any strides; written. With heads before tokens, one call fills what an
                attention reads of a batch.

        Returns:
            ``out``, or a new dense tensor ``[*ids.shape, *row_shape]``.
        """
        ...

    def scatter(self, view: "Tensor", ids: "Tensor", rows: "Tensor", *, first: int) -> None:
        """Write ``view[ids[i]] = rows[i]``; ids below ``first`` and past the view are skipped.

        Args:
            view: ``[n_rows, *row_shape]``, strided; written.
            ids: integers ``[n]``, none twice among those that are written.
            rows: ``[n, *row_shape]``, any strides.
            first: the smallest id that is written; ids of page 0 lie below it.
        """
        ...

    def alloc_pinned(self, nbytes: int) -> "Tensor":
        """Return a uint8 host tensor ``[nbytes]``, page-locked where the device copies from such memory faster."""
        ...

    def record(self, stream: Any = None) -> Any:
        """Return an event after the work issued so far on ``stream``, or on the present one."""
        ...

    def wait(self, event: Any) -> None:
        """Block the host until the event has happened."""
        ...
