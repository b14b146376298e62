"""One sub-pool as its users see it: pages, typed ids and views."""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from statehal.errors import ArgumentError
from statehal.ids import IdSpace, KernelIds, PhysicalIds, SpaceKey, Unit, VirtualIds
from statehal.layout import INT32_IDS, AddressForm, FormKind, PoolLayout
from statehal.pool.family import Family
from statehal.pool.graphs import outside
from statehal.pool.liveness import require_allotted
from statehal.pool.member import Member
from statehal.pool.pages import Pages
from statehal.pool.pool_plan import SubPoolPlan
from statehal.pool.step_books import StepBooks
from statehal.pool.views import field_view, page_views
from statehal.spec import ConvRecurrent, Spec

if TYPE_CHECKING:
    from statehal.pool.state_pool import StatePool

UNITS: tuple[Unit, ...] = ("tokens", "pages")


class SubPool:
    """A named part of a ``StatePool``.

    Attributes:
        spec: what is kept.
        layout: where it is kept.
        family: the sub-pools whose pages can be allocated under the same virtual ids.
        buffer: the pool's bytes, uint8 ``[total_bytes]``.
        table: page table on the device, int64 ``[num_virtual_pages + 1]``, last entry 0; ``None`` for direct ids.
    """

    def __init__(self, pool: "StatePool", plan: SubPoolPlan, family: Family, member: Member) -> None:
        self.pool = pool
        self.plan = plan
        self.spec: Spec = plan.spec
        self.layout: PoolLayout = plan.layout
        self.name = plan.name
        self.page_size = plan.layout.page_size
        self.family = family
        self.member = member
        self.buffer = pool.buffer
        self.page_views = page_views(pool.buffer, plan.layout)
        self.table = (
            None if member.direct else torch.zeros(family.num_virtual + 1, dtype=torch.int64, device=pool.device)
        )
        self.forms: tuple[AddressForm, ...] = plan.layout.address_forms
        spaces: dict[tuple[str, str], IdSpace] = {("virtual", unit): family.spaces[unit] for unit in UNITS}
        for unit in UNITS:
            for kind, forms in (("physical", ()), ("kernel", self.forms)):
                key = SpaceKey(pool.fingerprint, self.name, kind, unit, forms)  # type: ignore[arg-type]
                spaces[kind, unit] = IdSpace(key, pool, pool.checking)
        self._spaces = spaces
        self._wide = plan.layout.largest_id >= INT32_IDS
        self._targets = {
            spaces["virtual", unit]: (spaces["kernel", unit], self.multipliers(unit), unit) for unit in UNITS
        }

    def multipliers(self, unit: str) -> tuple[int, ...]:
        """What a physical page number is multiplied with in each form in use, to give kernel ids in that unit."""
        return tuple(form.multiplier(unit, self.page_size) for form in self.forms)  # type: ignore[arg-type]

    def space(self, kind: str, unit: str = "tokens") -> IdSpace:
        """An id space of this sub-pool: ``"virtual"``, ``"physical"`` or ``"kernel"``, in tokens or pages."""
        try:
            return self._spaces[kind, unit]
        except KeyError:
            raise ArgumentError(
                f"no id space {kind!r} in {unit!r}: expected virtual, physical or kernel in {UNITS}"
            ) from None

    def kernel_ids(self, virtual: VirtualIds, out: KernelIds | None = None) -> KernelIds:
        """Translate virtual ids for every width class and form in use; call it once a step, for reads and writes alike.

        Pending page-table updates are sent to the device first. Unmapped, negative and out-of-range ids become ids of
        page 0, the sink.

        Args:
            virtual: ids of this sub-pool's family, in tokens or pages, any shape.
            out: written and returned where given; its tensors keep their addresses, and one may be ``virtual``'s own
                where a single form is in use. Make it once with ``kernel_buffer``.

        Raises:
            WrongIdSpace: the ids are of another family or pool; under check also: of a page that nobody holds, or that
                was never allocated in this sub-pool.
            ArgumentError: ``out`` has another shape or unit, or int32 ids where this sub-pool's pass int32.
        """
        space = getattr(virtual, "space", None)
        target = self._targets.get(space)  # type: ignore[arg-type]
        if target is None:
            target = self._find_target(virtual, "kernel_ids")
        kernel, multipliers, unit = target
        if self.pool.pending:
            self.pool.flush()
        ids = virtual.tensors[0]
        if self._wide:
            self._require_wide("ids", virtual)
        if self.pool.checking:
            require_allotted(self, unit, ids)
        if out is None:
            outs = tuple([torch.empty_like(ids) for _ in multipliers])
            out = KernelIds(kernel, outs, self.pool.present)
        else:
            if not isinstance(out, KernelIds) or not kernel.same(out.space) or out.shape != ids.shape:
                got = repr(out) if isinstance(out, KernelIds) else f"a bare {type(out).__name__}"
                raise ArgumentError(f"out is {got}: expected {kernel} of shape {tuple(ids.shape)}, from kernel_buffer")
            if self._wide:
                self._require_wide("out", out)
            outs = out.tensors
        self.pool.ops.translate(ids, self.table, self.page_size, multipliers, outs, unit)
        out.renew(self.pool.present)
        return out

    def _require_wide(self, name: str, ids: VirtualIds | KernelIds) -> None:
        for tensor in ids.tensors:
            if tensor.dtype != torch.int64:
                raise ArgumentError(
                    f"kernel_ids of {self.name!r}: its ids pass int32 (fix: pass {name} of int64, not {tensor.dtype})"
                )

    def kernel_buffer(self, *shape: int, unit: str = "tokens", dtype: torch.dtype = torch.int64) -> KernelIds:
        """Kernel ids, all padding, whose tensors keep their addresses: an ``out`` for ``kernel_ids``.

        Raises:
            ArgumentError: ``dtype`` is neither int32 nor int64.
        """
        if dtype not in (torch.int32, torch.int64):
            raise ArgumentError(
                f"kernel_buffer of {self.name!r}: dtype is {dtype}: expected torch.int32 or torch.int64"
            )
        tensors = tuple(torch.zeros(shape, dtype=dtype, device=self.pool.device) for _ in self.forms)
        return KernelIds(self.space("kernel", unit), tensors, self.pool.present)

    def physical_ids(self, virtual: VirtualIds) -> PhysicalIds:
        """Translate virtual ids into physical tokens or pages; unmapped ids become ids of page 0."""
        space = getattr(virtual, "space", None)
        _, _, unit = self._targets.get(space) or self._find_target(virtual, "physical_ids")  # type: ignore[arg-type]
        if self.pool.pending:
            self.pool.flush()
        out = torch.empty_like(virtual.tensors[0])
        multiplier = self.page_size if unit == "tokens" else 1
        self.pool.ops.translate(virtual.tensors[0], self.table, self.page_size, (multiplier,), (out,), unit)
        return PhysicalIds(self.space("physical", unit), (out,), self.pool.present)

    def view(self, field: str, layer: int, form: FormKind | None = None) -> torch.Tensor:
        """The strided view that kernel ids index, for one layer of one field; aliases the pool.

        A whole-tensor operation on it would touch other layers' rows: index it, or zero pages through the pool. No part
        of a graph of ``torch.compile``, which may read such a view too late.

        Args:
            form: ``"row"`` ``[n_rows, *row]``, ``"block"`` or ``"page"`` ``[n, *token_shape, *row]``; by default the
                preferred one.

        Raises:
            LayoutError: no such field, or it lacks the form.
            ArgumentError: the field has no such layer.
        """
        # inductor computes what is read through a view of another dtype after later mutations (pytorch#198101)
        outside("view()", "reads through it could see bytes of later writes (fix: read in an operator of your own)")
        return field_view(self.buffer, self.layout, field, form or self.layout.kinds(field)[0], layer)

    def alloc(self, tokens: int) -> Pages:
        """Pages for ``tokens`` tokens (or that many slots) in this sub-pool alone.

        Raises:
            PoolExhausted: says what is free and what compaction would give.
        """
        return self.pool.alloc(tokens, self.name)

    def free(self, pages: Pages | int | Iterable[Pages] | Iterable[int]) -> None:
        """Give back handles or host ints of this sub-pool's family, in all of its members; see ``StatePool.free``."""
        self.pool.free(pages, family=self.family)

    @cached_property
    def step_books(self) -> StepBooks:
        """Which slots of a conv sub-pool are between an operation and its commit, as far as checking knows."""
        assert isinstance(self.spec, ConvRecurrent), "only slots have steps"
        return StepBooks(self, self.spec.verify_tokens)

    @property
    def used_pages(self) -> int:
        """Physical pages in use."""
        allocator = self.member.allocator
        return sum(allocator.used(slab) for slab in allocator.free)

    def _find_target(self, virtual: VirtualIds, method: str) -> tuple[IdSpace, tuple[int, ...], Unit]:
        """The target of ids whose space is equal but not identical (after unpickling), or the error."""
        space = getattr(virtual, "space", None)
        for known, target in self._targets.items():
            if space is not None and known.same(space):
                return target
        unit = space.key.unit if space is not None else "tokens"
        self._spaces["virtual", unit].accept(virtual, f"{method} of {self.name!r}")
        raise AssertionError("accept refuses what is not one of the targets")

    def __repr__(self) -> str:
        return f"SubPool({self.name!r}, {self.used_pages} of {self.plan.max_pages} pages in use)"
