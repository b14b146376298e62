"""Dividing a budget into slabs and pages, before anything is allocated. No torch."""

from collections.abc import Callable, Iterable, Mapping
from math import lcm
from types import MappingProxyType

from statehal.errors import LayoutError, PlanError
from statehal.layout import PoolLayout, conv_window, page_major
from statehal.pool.pool_plan import PoolPlan, Region, SubPoolPlan
from statehal.pool.slab_search import PageSize, pages_per_slab, smallest_slab
from statehal.spec import Spec

LayoutFor = Callable[[Spec, int], PoolLayout]
"""Makes the tight layout of a spec at a page size."""

REGION_ALIGN = 4096
"""Bytes: where a region of the pool's buffer may begin."""


def default_layout(spec: Spec, page_size: int) -> PoolLayout:
    """Page-major rows for tokens, a ring window for slots."""
    return page_major(spec, page_size) if spec.kind == "tokens" else conv_window(spec)


def plan(
    specs: Iterable[Spec],
    *,
    total_bytes: int | None = None,
    tokens: int | None = None,
    requests: int = 1,
    page_size: int = 16,
    layouts: LayoutFor = default_layout,
    waste_limit: float = 0.02,
    budgets: Mapping[str, int] | None = None,
    ids64: bool = False,
) -> PoolPlan:
    """Divide a budget among the sub-pools of ``specs``.

    Args:
        total_bytes: the budget; rounded down to whole slabs, see ``PoolPlan.unused_bytes``.
        tokens: instead of a budget: tokens of one sequence that every token sub-pool can hold (no eviction assumed),
            beside ``requests`` slots in every slot sub-pool. Several sequences each round up to whole pages.
        page_size: tokens of a page; a slot is a page of its own.
        layouts: makes each spec's tight layout; a binding passes its backend's.
        waste_limit: the largest part of a slab that a sub-pool may lose to division.
        budgets: bytes of each sub-pool that cannot share slabs (layer-major layouts) and is not alone in the pool.
        ids64: kernels take 64-bit ids, so the int32 bound does not apply.

    Raises:
        PlanError: no plan exists; names the numbers and what to change.
        AddressBoundError: ids of a form in use would not fit.
    """
    if isinstance(specs, Spec):
        raise PlanError(f"specs is one {type(specs).__name__}: expected several (fix: pass [{specs.name}])")
    specs = tuple(specs)
    _check_arguments(specs, total_bytes, tokens, requests, page_size, budgets, waste_limit)
    tight = {spec.name: layouts(spec, page_size) for spec in specs}
    for spec in specs:
        name, layout = spec.name, tight[spec.name]
        layout.check()
        if spec.kind == "tokens" and layout.page_size != page_size:
            raise LayoutError(
                f"the layout of {name!r} has pages of {layout.page_size} tokens: expected {page_size}, as the plan's "
                f"page_size says"
            )
        if layout.order == "page" and layout.origin:
            raise LayoutError(
                f"the layout of {name!r} begins at byte {layout.origin}: expected a page that begins at 0"
            )
    pages = (
        None if tokens is None else {s.name: requests if s.kind == "slots" else -(-tokens // page_size) for s in specs}
    )
    alone = [spec.name for spec in specs if tight[spec.name].order == "layer"]
    shared = [spec.name for spec in specs if spec.name not in alone]
    if len(shared) == 1:  # nobody is left to share slabs with
        alone, shared = alone + shared, []
    budgets = dict(budgets or {})
    if set(budgets) - set(alone) or (budgets and tokens is not None):
        raise PlanError(
            f"budgets={budgets}: expected beside total_bytes, for sub-pools that cannot share slabs, which are {alone}"
        )
    sizes = {name: _own_bytes(name, tight[name], pages, total_bytes, budgets, len(specs)) for name in alone}
    regions: list[Region] = []
    if shared:
        reserved = sum(size + _region_align(tight[name]) for name, size in sizes.items())
        asked = [PageSize(name, tight[name].page_bytes, tight[name].granularity) for name in shared]
        regions.append(_shared_region(asked, pages, total_bytes, reserved, waste_limit))
    for name, size in sizes.items():
        end = regions[-1].offset + regions[-1].total_bytes if regions else 0
        unit = _region_align(tight[name])
        regions.append(Region(-(-end // unit) * unit, size, 1, (name,)))
    homes = {name: region for region in regions for name in region.members}
    subpools = {spec.name: _place(spec, tight[spec.name], homes[spec.name], waste_limit) for spec in specs}
    if not ids64:
        for name, sub in subpools.items():
            sub.layout.check_bounds(name)
    used = max(region.offset + region.total_bytes for region in regions)
    if total_bytes is not None and used > total_bytes:
        raise PlanError(
            f"{total_bytes} bytes do not hold {sizes} bytes, which take {used} with the space between them (fix: lower "
            f"budgets, or raise total_bytes to {used})"
        )
    return PoolPlan(MappingProxyType(subpools), tuple(regions), page_size, used if total_bytes is None else total_bytes)


def _check_arguments(
    specs: tuple[Spec, ...],
    total_bytes: int | None,
    tokens: int | None,
    requests: int,
    page_size: int,
    budgets: Mapping[str, int] | None,
    waste_limit: float,
) -> None:
    names = [spec.name for spec in specs]
    if not names or len(set(names)) != len(names):
        raise PlanError(f"a plan needs specs of distinct names: got {names}")
    if (total_bytes is None) == (tokens is None):
        raise PlanError(f"give total_bytes or tokens, one of them: got total_bytes={total_bytes}, tokens={tokens}")
    given = {"total_bytes": total_bytes, "tokens": tokens, "requests": requests, "page_size": page_size}
    given |= {f"budgets[{name!r}]": size for name, size in (budgets or {}).items()}
    for argument, value in given.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise PlanError(f"{argument}={value!r}: expected an integer of at least 1")
    if not isinstance(waste_limit, float | int) or not 0 <= waste_limit < 1:
        raise PlanError(f"waste_limit={waste_limit!r}: expected a number from 0 to below 1")


def _region_align(layout: PoolLayout) -> int:
    """Bytes of which a region with this layout begins at a multiple."""
    return lcm(REGION_ALIGN, layout.align)


def _tight_stride(layout: PoolLayout) -> int:
    """Bytes of one page once the forms in use exist."""
    if layout.order == "layer":
        return layout.page_bytes
    return PageSize("", layout.page_bytes, layout.granularity).tight


def _own_bytes(
    name: str,
    layout: PoolLayout,
    pages: Mapping[str, int] | None,
    total_bytes: int | None,
    budgets: Mapping[str, int],
    members: int,
) -> int:
    """Bytes of a region that one sub-pool has to itself, in whole pages."""
    stride = _tight_stride(layout)

    def size(count: int) -> int:
        return layout.resize(count, None if layout.order == "layer" else stride).total_bytes

    if pages is not None:
        count = pages[name] + 1
    else:
        budget = total_bytes if members == 1 else budgets.get(name)
        if budget is None:
            raise PlanError(
                f"sub-pool {name!r} cannot share slabs, because each of its layers is contiguous over all pages or "
                f"nobody shares with it (fix: give its bytes in budgets={{{name!r}: ...}}, or use a page-major layout)"
            )
        count = max(budget, 0) // stride
        while count and size(count) > budget:  # layer-major fields may need padding between them
            count -= 1
        if count < 2:
            raise PlanError(
                f"{budget} bytes hold {count} pages of {stride} bytes for {name!r}; at least 2 are needed, one of them "
                f"the sink (fix: raise the budget to {size(2)} or lower page_size)"
            )
    return size(count)


def _shared_region(
    asked: list[PageSize], pages: Mapping[str, int] | None, total_bytes: int | None, reserved: int, waste_limit: float
) -> Region:
    """The smallest slabs that all members divide, and how many the budget or the pages asked for come to."""
    least = 1 + len(asked)
    budget = None if total_bytes is None else total_bytes - reserved
    slab = smallest_slab(asked, waste_limit, None if budget is None else max(budget, 0) // least)
    if slab is None or (budget is not None and budget // slab < least):
        ideal = slab or smallest_slab(asked, waste_limit)
        sizes = ", ".join(f"{page.name} {page.tight}" for page in asked)
        taken = f", {reserved} of them taken by budgets," if reserved else ""
        raise PlanError(
            f"{total_bytes} bytes{taken} cannot be divided into slabs for pages of {sizes} bytes: within "
            f"waste_limit={waste_limit} a slab takes {ideal} bytes and {least} are needed, one of them the sink (fix: "
            f"raise total_bytes to {reserved + least * (ideal or 0)}, raise waste_limit, or change page_size)"
        )
    if budget is not None:
        count = budget // slab
    else:
        assert pages is not None
        per_slab = {page.name: pages_per_slab(page, slab, waste_limit) or 1 for page in asked}
        count = 1 + sum(-(-pages[name] // k) for name, k in per_slab.items())
    return Region(0, slab, count, tuple(page.name for page in asked))


def _place(spec: Spec, layout: PoolLayout, region: Region, waste_limit: float) -> SubPoolPlan:
    """The final layout of a sub-pool in its region."""
    if region.shared:
        page = PageSize(spec.name, layout.page_bytes, layout.granularity)
        per_slab = pages_per_slab(page, region.slab_bytes, waste_limit)
        assert per_slab is not None, "the slab search vouches for every member"
        final = layout.resize(region.num_slabs * per_slab, region.slab_bytes // per_slab)
    else:
        stride = _tight_stride(layout)
        per_slab = region.slab_bytes // stride
        final = layout.resize(per_slab, None if layout.order == "layer" else stride)
    return SubPoolPlan(spec, final.at(region.offset), region, per_slab)
