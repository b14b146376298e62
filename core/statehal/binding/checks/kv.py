"""What can be wrong with a KV write that no shape shows."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from statehal.binding.checks.values import host, require_between, require_distinct
from statehal.errors import ArgumentError

if TYPE_CHECKING:
    from statehal.hookspecs import KVWriter
    from statehal.ids import KernelIds
    from statehal.pool import SubPool


class CheckedKVWriter:
    """The methods of ``methods``, each after its checks.

    Raises, besides what the methods do:
        ArgumentError: a position lies outside of ``cos_sin``, a scale is not positive and finite, or a token is written
            twice.
        WrongIdSpace: an id of a page that nobody holds.
    """

    def __init__(self, methods: "KVWriter", sub: "SubPool") -> None:
        self._methods = methods
        self._sub = sub

    def write(self, layer: int, ids: "KernelIds", k: Tensor, v: Tensor, **options: Any) -> None:
        where = f"write to layer {layer} of {self._sub.name!r}"
        self._once(where, ids)
        _scales(where, options)
        self._methods.write(layer, ids, k, v, **options)

    def rope_write(
        self,
        layer: int,
        ids: "KernelIds",
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor,
        cos_sin: Tensor,
        **options: Any,
    ) -> Tensor:
        where = f"rope_write to layer {layer} of {self._sub.name!r}"
        self._positions(where, self._once(where, ids), positions, cos_sin)
        _scales(where, options)
        return self._methods.rope_write(layer, ids, q, k, v, positions, cos_sin, **options)

    def write_latent(
        self,
        layer: int,
        ids: "KernelIds",
        kv_c: Tensor,
        k_pe: Tensor,
        *,
        positions: Tensor | None = None,
        cos_sin: Tensor | None = None,
        **options: Any,
    ) -> None:
        where = f"write_latent to layer {layer} of {self._sub.name!r}"
        tokens = self._once(where, ids)
        if positions is not None and cos_sin is not None:
            self._positions(where, tokens, positions, cos_sin)
        _scales(where, options)
        self._methods.write_latent(layer, ids, kv_c, k_pe, positions=positions, cos_sin=cos_sin, **options)

    def move(self, dst: "KernelIds", src: "KernelIds") -> None:
        where = f"move in {self._sub.name!r}"
        self._tokens(where, src)
        require_distinct(where, "dst", self._tokens(where, dst), "token")
        self._methods.move(dst, src)

    def _once(self, where: str, ids: "KernelIds") -> Tensor:
        """Tokens that are written, ``[tokens]``: none of them twice."""
        tokens = self._tokens(where, ids)
        require_distinct(where, "ids", tokens, "token")
        return tokens

    def _tokens(self, where: str, ids: "KernelIds") -> Tensor:
        """Ids of the first form on the host, ``[tokens]``, 0 for padding."""
        space = self._sub.space("kernel", "tokens")
        tensors = space.accept(ids, where)
        self._sub.pool.verify(space.key, tensors)
        first = tensors[0].detach().cpu().long().reshape(-1)
        return first.where(first >= self._sub.page_size, 0)

    def _positions(self, where: str, tokens: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
        for shape in ((len(tokens),), (3, len(tokens))):
            values = host(positions, *shape)
            if values is not None and isinstance(cos_sin, Tensor) and cos_sin.dim() == 2:
                used = (tokens > 0).expand(values.shape)
                require_between(where, "positions", values, 0, cos_sin.shape[0] - 1, used)


def _scales(where: str, options: dict[str, Any]) -> None:
    """Refuse scales in tensors that no row can be divided by; numbers are the provider's to refuse."""
    for name in ("k_scale", "v_scale", "scale"):
        scale = options.get(name)
        if isinstance(scale, Tensor) and scale.is_floating_point():
            values = scale.detach().cpu().reshape(-1)
            bad = ~((values.float() > 0) & values.float().isfinite())
            if bool(bad.any()):
                value = float(values[bad][0])
                raise ArgumentError(
                    f"{where}: {name} is {value}: expected a scale that float32 holds, positive and finite"
                )
