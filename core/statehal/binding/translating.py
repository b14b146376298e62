"""Writes by virtual ids: translation composed with a writer that takes its sub-pool's own ids."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from statehal.ids import VirtualIds
from statehal.pool.graphs import outside

if TYPE_CHECKING:
    from statehal.hookspecs import KVWriter
    from statehal.ids import KernelIds
    from statehal.pool import SubPool


class TranslatingKVWriter:
    """The methods of ``methods``, given the virtual ids that a host holds.

    Each call translates by the page table as it is then and keeps nothing, so that no update of the table and no
    compaction can leave it with ids of before. A host that writes many layers translates once itself, with
    ``subpool.kernel_ids``, and so does one that compiles: no graph of ``torch.compile`` holds these methods.

    Raises, besides what the methods do:
        WrongIdSpace: the ids are no virtual tokens of the sub-pool's family; nothing is translated or stored.
    """

    def __init__(self, methods: "KVWriter", sub: "SubPool") -> None:
        self._methods = methods
        self._sub = sub
        self._space = sub.space("virtual", "tokens")

    def write(self, layer: int, ids: VirtualIds, k: Tensor, v: Tensor, **options: Any) -> None:
        self._methods.write(layer, self._own(ids, "write", layer), k, v, **options)

    def rope_write(
        self, layer: int, ids: VirtualIds, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cos_sin: Tensor,
        **options: Any,
    ) -> Tensor:  # fmt: skip
        own = self._own(ids, "rope_write", layer)
        return self._methods.rope_write(layer, own, q, k, v, positions, cos_sin, **options)

    def write_latent(self, layer: int, ids: VirtualIds, kv_c: Tensor, k_pe: Tensor, **options: Any) -> None:
        self._methods.write_latent(layer, self._own(ids, "write_latent", layer), kv_c, k_pe, **options)

    def move(self, dst: VirtualIds, src: VirtualIds) -> None:
        self._methods.move(self._own(dst, "move"), self._own(src, "move"))

    def _own(self, ids: VirtualIds, method: str, layer: int | None = None) -> "KernelIds":
        # a graph would not guard that these are ids of the same space
        outside(f"{method} by virtual ids", "it would serve ids of other spaces (fix: translate before, by kernel_ids)")
        to = "in" if layer is None else f"to layer {layer} of"
        self._space.accept(ids, f"{method} {to} {self._sub.name!r}")
        return self._sub.kernel_ids(ids)
