"""statehal: a hardware-abstraction layer for the state that LLM inference keeps.

Names are imported when first used: ``import statehal`` loads no torch.
"""

from typing import TYPE_CHECKING

from statehal._lazy import lazy_exports

if TYPE_CHECKING:
    from statehal.binding import Binding, bind
    from statehal.errors import StatehalError
    from statehal.hookspecs import BackendInfo, Probe, hookimpl
    from statehal.ids import KernelIds, PhysicalIds, VirtualIds
    from statehal.layout import ConvStateLayout, FieldLayout, PoolLayout
    from statehal.pool import Pages, PoolPlan, StatePool, SubPool, plan
    from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent

__version__ = "0.1.0"

_EXPORTS = {
    "binding": ("Binding", "bind"),
    "errors": ("StatehalError",),
    "hookspecs": ("BackendInfo", "Probe", "hookimpl"),
    "ids": ("KernelIds", "PhysicalIds", "VirtualIds"),
    "layout": ("ConvStateLayout", "FieldLayout", "PoolLayout"),
    "pool": ("Pages", "PoolPlan", "StatePool", "SubPool", "plan"),
    "spec": ("Attention", "ConvRecurrent", "ExtraField", "Latent"),
}
__getattr__, __dir__ = lazy_exports(
    __name__, {name: f".{module}" for module, names in _EXPORTS.items() for name in names}
)

__all__ = [
    "Attention",
    "BackendInfo",
    "Binding",
    "ConvRecurrent",
    "ConvStateLayout",
    "ExtraField",
    "FieldLayout",
    "KernelIds",
    "Latent",
    "Pages",
    "PhysicalIds",
    "PoolLayout",
    "PoolPlan",
    "Probe",
    "StatePool",
    "StatehalError",
    "SubPool",
    "VirtualIds",
    "bind",
    "hookimpl",
    "plan",
]
