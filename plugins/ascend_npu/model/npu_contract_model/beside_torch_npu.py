"""Importing this gives the KV operators of an installed torch_npu kernels for the host.

Each call passes the operator's own schema and, where it has one, its Meta kernel, before the model stores anything. The
causal conv1d, which torch_npu does not have, is the model's as in ``current``. torch_npu needs CANN's libraries, or
stubs of them.
"""

import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from npu_contract_model import register

MET: Counter[str] = Counter()
"""How many calls each operator's Meta kernel has passed."""


def on_meta(tensor: Tensor) -> Tensor:
    """A tensor without contents, of the same shape, strides and dtype."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def after_meta(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, behind the operator's Meta kernel where torch_npu has one."""
    namespace, base = name.split("::")
    operator = getattr(getattr(torch.ops, namespace), base)
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
        return kernel

    def run(*args: Any, **kwargs: Any) -> Any:
        operator(*pytree.tree_map_only(Tensor, on_meta, args), **pytree.tree_map_only(Tensor, on_meta, kwargs))
        MET[name] += 1
        return kernel(*args, **kwargs)

    return run


def implement(name: str, kernel: Callable[..., Any]) -> None:
    """Add a kernel for the host to an operator that is registered."""
    namespace, base = name.split("::")
    library = torch.library.Library(namespace, "IMPL", "CPU")
    library.impl(base, register.on_the_device(after_meta(name, kernel)))
    register.keep(library)


importlib.import_module("torch_npu")
implement("npu::npu_scatter_pa_kv_cache", register.scatter_pa_kv_cache)
implement("atb::_npu_reshape_and_cache", register.reshape_and_cache)
implement("npu::npu_scatter_nd_update_", register.scatter_nd_update_)
register.conv_operator("current")
