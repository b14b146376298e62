"""The backend under judgement, on one device."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import torch

from statehal.binding import Binding, bind
from statehal.hookspecs import BackendInfo
from statehal.pool import StatePool
from statehal.registry import Registry, get
from statehal.spec import Attention, ConvRecurrent, Latent, Spec


class Target:
    """A backend on a device, as checks see it.

    Attributes:
        backend, device: what is judged.
        registry: where it is found; the process's own by default.
    """

    def __init__(self, backend: str, device: str = "cpu", registry: Registry | None = None) -> None:
        self.backend = backend
        self.device = device
        self.registry = registry or get()
        self._bindings: dict[tuple[bool, bool], Binding] = {}

    @property
    def info(self) -> BackendInfo:
        """What the backend says of itself."""
        return self.registry.backends[self.backend].info

    def binding(self, *, check: bool = False, compile_safe: bool = False) -> Binding:
        """The binding, made once for each pair of options."""
        key = check, compile_safe
        if key not in self._bindings:
            self._bindings[key] = bind(self.device, self.backend, compile_safe, check, registry=self.registry)
        return self._bindings[key]

    def pool(self, specs: Iterable[Spec], *, check: bool = False, **options: Any) -> StatePool:
        """A pool of the backend's own layouts; ``options`` as of ``Binding.plan``."""
        hal = self.binding(check=check)
        return hal.allocate(hal.plan(specs, **options))

    @cached_property
    def providers(self) -> Mapping[str, str]:
        """The plugin that provides each method: ``"kv.write"``, ``"conv.decode"``, ``"memory.translate"``."""
        hal = self.binding()
        specs = [
            Attention("kv", (0,), 1, 8, "bfloat16"),
            Latent("mla", (1,), 8, 8, "bfloat16"),
            ConvRecurrent("conv", (2,), 16, 4, "bfloat16", verify_tokens=2),
        ]
        found: dict[str, str] = {}
        for spec in specs:
            pool = hal.allocate(hal.plan([spec], tokens=16, page_size=16))
            for name, provider in hal.describe(pool).methods.items():
                found.setdefault(name.split(": ")[-1], provider)
        return found

    @cached_property
    def offers(self) -> frozenset[str]:
        """Methods that the backend itself provides, and the capability tags that it claims."""
        own = {name for name, provider in self.providers.items() if self.backend in provider.split(", ")}
        return frozenset(own | self.info.capabilities)

    def lacks(self, needs: Iterable[str]) -> str:
        """Why a check with these needs does not apply to the backend; empty where it does."""
        missing = sorted(set(needs) - self.offers)
        if not missing:
            return ""
        return "; ".join(
            f"{name} is done by {self.providers[name]}" if name in self.providers else f"{name} is not claimed"
            for name in missing
        )

    def image(self, pool: StatePool) -> bytearray:
        """The bytes of a pool, on the host."""
        return bytearray(pool.buffer.detach().cpu().numpy().tobytes())

    def on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values, with the same strides, on the device."""
        if self.device == "cpu":
            return tensor
        moved = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device)
        moved.copy_(tensor)
        return moved
