"""The backend under judgement, on one device."""

from collections.abc import Iterable, Mapping
from ctypes import string_at
from functools import cached_property, partial
from logging import LogRecord
from types import MappingProxyType
from typing import Any

import torch

from statehal.binding import Binding, bind
from statehal.hookspecs import BackendInfo
from statehal.pool import StatePool
from statehal.registry import REFERENCE, Conflict, Failure, Registry, get
from statehal.spec import Attention, ConvRecurrent, Latent, Spec
from statehal.testing.quiet import unlogged

ROWS: Mapping[str, type[Spec]] = MappingProxyType(
    {"kv.write": Attention, "kv.rope_write": Attention, "kv.write_latent": Latent}
)
"""The spec of the rows that a method writes, of those that do not write all: for others it may be there and refuse."""


class Target:
    """A backend on a device, as checks see it.

    Attributes:
        backend: what is judged.
        device: where it is judged.
        registry: where it is found; the process's own by default.
    """

    def __init__(self, backend: str, device: str = "cpu", registry: Registry | None = None) -> None:
        self.backend = backend
        self.device = device
        with unlogged(partial(_refuses, backend)):  # who judges it is told by the error
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

    def claimed(self, prefix: str) -> str:
        """A dtype that the backend claims with ``prefix`` (``"store:"``, ``"window:"``), bfloat16 if it is one."""
        tags = sorted(tag.removeprefix(prefix) for tag in self.info.capabilities if tag.startswith(prefix))
        return "bfloat16" if "bfloat16" in tags or not tags else tags[0]

    def samples(self) -> tuple[Spec, Spec, Spec]:
        """A spec of each kind, ``kv``, ``mla`` and ``conv``, in dtypes that the backend claims."""
        stored = self.claimed("store:")
        return (
            Attention("kv", (0,), 1, 8, stored),
            Latent("mla", (1,), 8, 8, stored),
            ConvRecurrent("conv", (2,), 16, 4, self.claimed("window:"), verify_tokens=2),
        )

    @cached_property
    def providers(self) -> Mapping[str, str]:
        """The plugin that provides each method, and each layout (``"kv.write"``, ``"layout.tokens"``)."""
        hal = self.binding()
        found: dict[str, str] = {}
        for spec in self.samples():
            pool = hal.allocate(hal.plan([spec], tokens=16, page_size=16))
            described = hal.describe(pool)
            found.setdefault(f"layout.{spec.kind}", described.layouts[spec.name])
            for name, provider in described.methods.items():
                method = name.split(": ")[-1]
                if found.get(method, REFERENCE) == REFERENCE and ROWS.get(method, type(spec)) is type(spec):
                    found[method] = provider
        return found

    @cached_property
    def overrides(self) -> Mapping[str, str]:
        """The overriding plugin of each method, and of each layout, that one provides."""
        plugins = self.registry.overrides
        if not plugins:
            return {}  # without asking a backend that may be broken
        return {
            name: plugin for name, plugin in self.providers.items() if not plugins.keys().isdisjoint(plugin.split(", "))
        }

    @cached_property
    def offers(self) -> frozenset[str]:
        """Methods and layouts that the backend and overriding plugins provide, and the tags and flags claimed."""
        own = {name for name, provider in self.providers.items() if self.backend in provider.split(", ")}
        own |= self.overrides.keys()
        return frozenset(own | self.info.capabilities | self._flags(own))

    def _flags(self, own: set[str]) -> set[str]:
        """``"kv.graph_capturable"`` and the like: flags of the operations of which the backend provides a method."""
        hal = self.binding()
        kv, _, conv = self.samples()
        pool = hal.allocate(hal.plan([kv, conv], tokens=16, page_size=16))
        bound = {"kv": hal.kv(pool["kv"]), "conv": hal.conv(pool["conv"]), "memory": hal.memory}
        return {
            f"{label}.{flag}"
            for label, methods in bound.items()
            for flag in ("graph_capturable", "host_sync_free")
            if getattr(methods, flag) and any(name.startswith(f"{label}.") for name in own)
        }

    def lacks(self, needs: Iterable[str]) -> str:
        """Why a check with these needs does not apply to the backend; empty where it does.

        Args:
            needs: methods and tags; of ``"store:int8 or store:float16"`` one is enough.
        """
        return "; ".join(
            f"{name} is done by {self.providers[name]}" if name in self.providers else f"{name} is not claimed"
            for name in self.missing(needs)
        )

    def missing(self, needs: Iterable[str]) -> list[str]:
        """Those of a check's needs that the backend does not offer, in the order of their names."""
        return sorted(need for need in set(needs) if self.offers.isdisjoint(need.split(" or ")))

    def image(self, pool: StatePool) -> bytearray:
        """The bytes of a pool, on the host."""
        held = pool.buffer.detach().cpu()
        return bytearray(string_at(held.data_ptr(), held.numel()))

    def on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values, with the same strides, on the device."""
        if self.device == "cpu":
            return tensor
        moved = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device)
        moved.copy_(tensor)
        return moved


def _refuses(backend: str, record: LogRecord) -> bool:
    """Whether a record of the log says that this plugin was refused at discovery."""
    said = record.args if isinstance(record.args, tuple) else ()
    return any(isinstance(one, Failure | Conflict) and one.name == backend for one in said)
