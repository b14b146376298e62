"""Fused KV writes in plain torch."""

from torch import Tensor

from statehal.errors import ArgumentError, Unsupported
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal.pool import SubPool
from statehal.reference.rows import RowStore
from statehal.reference.validate import refuse, refuse_cast, require_layer, require_tensor
from statehal.spec import Latent


def make_store(sub: SubPool, field: str) -> RowStore:
    """A store for the first form in use of a field; every layout has one."""
    return RowStore(sub, field, sub.layout.kinds(field)[0])


class ReferenceKVWriter:
    """Implements ``write``, ``write_latent`` and ``move`` of ``statehal.hookspecs.KVWriter``."""

    def __init__(self, request: KVWriteRequest) -> None:
        sub = request.subpool
        self._name = sub.name
        self._space = sub.space("kernel", "tokens")
        self._device = sub.buffer.device
        self._rank = sub.spec.kv_lora_rank if isinstance(sub.spec, Latent) else 0
        self._shapes = {field.name: field.row_shape for field in sub.spec.fields()}
        self._stores = {field.name: make_store(sub, field.name) for field in sub.layout.fields}
        self._where = {name: sub.forms.index(store.form) for name, store in self._stores.items()}

    def write(
        self,
        layer: int,
        ids: KernelIds,
        k: Tensor,
        v: Tensor,
        *,
        k_scale: Tensor | float | None = None,
        v_scale: Tensor | float | None = None,
    ) -> None:
        where = f"write to layer {layer} of {self._name!r}"
        tensors = self._space.accept(ids, where)
        refuse(where, k_scale=k_scale, v_scale=v_scale)
        if "k_scale" in self._stores:
            raise Unsupported(
                f"{where}: the reference backend does not compute the scales that this sub-pool stores (fix: use "
                "another backend, or a spec without scales)"
            )
        self._require_rows(where, layer, ids, k=k, v=v)
        self._store(layer, tensors, k=k, v=v)

    def write_latent(
        self,
        layer: int,
        ids: KernelIds,
        kv_c: Tensor,
        k_pe: Tensor,
        *,
        norm: Tensor | None = None,
        eps: float = 1e-6,
        positions: Tensor | None = None,
        cos_sin: Tensor | None = None,
        interleaved: bool = False,
        scale: Tensor | float | None = None,
    ) -> None:
        where = f"write_latent to layer {layer} of {self._name!r}"
        tensors = self._space.accept(ids, where)
        refuse(where, norm=norm, positions=positions, cos_sin=cos_sin, scale=scale)
        if k_pe.dim() == 3 and k_pe.shape[1] == 1:
            k_pe = k_pe.squeeze(1)
        store = self._store_of("latent", where)
        require_layer(where, layer, store.views)
        dtype = store.views[layer].dtype
        rank, count = self._rank, ids.shape.numel()
        refuse_cast(where, "kv_c", kv_c, dtype)
        require_tensor(where, "kv_c", kv_c, (count, rank), dtype, self._device)
        require_tensor(where, "k_pe", k_pe, (count, self._shapes["latent"][-1] - rank), dtype, self._device)
        row = kv_c.new_empty((count, self._shapes["latent"][-1]))
        row[:, :rank] = kv_c
        row[:, rank:] = k_pe
        self._store(layer, tensors, latent=row)

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        where = f"move in {self._name!r}"
        to, source = self._space.accept(dst, where), self._space.accept(src, where)
        if dst.shape != src.shape:
            raise ArgumentError(
                f"{where}: dst has shape {list(dst.shape)} and src {list(src.shape)}: expected one shape"
            )
        for name, store in self._stores.items():
            at = self._where[name]
            owners = {id(view): layer for layer, view in store.views.items()}
            rows = {layer: store.load(layer, source[at].reshape(-1)) for layer in owners.values()}
            for layer, row in rows.items():
                store.store(layer, store.place(to[at].reshape(-1)), row)

    def _require_rows(self, where: str, layer: int, ids: KernelIds, **rows: Tensor) -> None:
        count = ids.shape.numel()
        for name, tensor in rows.items():
            store = self._store_of(name, where)
            require_layer(where, layer, store.views)
            refuse_cast(where, name, tensor, store.views[layer].dtype)
            require_tensor(where, name, tensor, (count, *self._shapes[name]), store.views[layer].dtype, self._device)

    def _store_of(self, name: str, where: str) -> RowStore:
        if name not in self._stores:
            raise ArgumentError(f"{where}: this sub-pool has no field {name!r}, only {list(self._stores)}")
        return self._stores[name]

    def _store(self, layer: int, tensors: tuple[Tensor, ...], **rows: Tensor) -> None:
        places: dict[tuple[object, ...], tuple[Tensor, tuple[Tensor, ...]]] = {}
        for name, tensor in rows.items():
            store = self._stores[name]
            if store.key not in places:
                places[store.key] = store.place(tensors[self._where[name]].reshape(-1))
            store.store(layer, places[store.key], tensor.reshape(-1, *store.row_shape))
