"""Refusing ids inside a graph: ``torch.compile`` would replace an error raised while it traces by one of its own."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from torch import Tensor

from statehal.binding.library.handles import handle
from statehal.ids import IdSpace, KernelIds, SpaceKey

SCHEMAS = {
    "refuse_ids": """(
        Tensor(a!) buffer, SymInt bound, str method, SymInt? layer, str[] space, SymInt epoch
    ) -> ()"""
}


def refuse_ids(
    buffer: Tensor, bound: int, method: str, layer: int | None, space: Sequence[str], epoch: int
) -> NoReturn:
    """Raise what ``accept`` raises for ids of that space and epoch; no space stands for a bare tensor.

    The schema says that ``buffer`` is mutated: a graph would drop the operator otherwise.
    """
    one = handle(bound)
    where = place(method, layer, one.sub.name)
    if not space:
        raise one.space.refusal(buffer, where)
    pool, owner, kind, unit = space
    key = SpaceKey(pool, owner, kind, unit)  # type: ignore[arg-type]  # they come from a key
    same = key[:4] == one.space.key[:4]
    raise one.space.refusal(KernelIds(one.space if same else IdSpace(key), (), epoch), where)


def place(method: str, layer: int | None, name: str) -> str:
    """Which call an error is about."""
    return f"{method} of {name!r}" if layer is None else f"{method} to layer {layer} of {name!r}"


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {"refuse_ids": refuse_ids}
