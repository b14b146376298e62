"""Registering the model with torch as the kernels of the operators on the host, under their very schemas."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from npu_contract_model import conv, kv
from npu_contract_model.conv import Call

CURRENT = (
    "causal_conv1d(Tensor x, Tensor weight, Tensor conv_states, Tensor? bias=None, Tensor? query_start_loc=None, "
    "Tensor? cache_indices=None, Tensor? has_initial_state=None, Tensor? num_accepted_tokens=None, "
    "int activation_mode=0, int pad_slot_id=-1, int run_mode=0) -> Tensor"
)
NEWER = CURRENT.replace("Tensor conv_states", "Tensor(a!) conv_states")
OLDER = (
    "causal_conv1d(Tensor x, Tensor weight, Tensor conv_states, Tensor query_start_loc, Tensor cache_indices, "
    "Tensor has_initial_state, Tensor? bias=None, bool activation_mode=False, int pad_slot_id=-1) -> Tensor"
)
CUSTOM = (
    "npu_causal_conv1d_custom(Tensor output, Tensor x, Tensor weight, Tensor conv_state, Tensor? bias_opt, "
    "Tensor? query_start_loc_opt, Tensor? cache_indices_opt, Tensor? initial_state_mode_opt, "
    "Tensor? num_accepted_tokens_opt, int activation_mode, int pad_slot_id, int run_mode) -> Tensor"
)
SCATTER_PA = (
    "npu_scatter_pa_kv_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
    "Tensor slot_mapping, *, Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None, "
    'str? cache_mode="PA_NZ") -> ()'
)
RESHAPE = (
    "_npu_reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
    "Tensor slot_indices) -> ()"
)
SCATTER_ND = "npu_scatter_nd_update_(Tensor(a!) input, Tensor indices, Tensor updates) -> Tensor(a!)"

_libraries: list[torch.library.Library] = []


def current(
    x: Tensor, weight: Tensor, conv_states: Tensor, bias: Tensor | None = None, query_start_loc: Tensor | None = None,
    cache_indices: Tensor | None = None, has_initial_state: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None, activation_mode: int = 0, pad_slot_id: int = -1, run_mode: int = 0,
) -> Tensor:  # fmt: skip
    return conv.causal_conv1d(
        Call(
            x, weight, conv_states, bias, query_start_loc, cache_indices, has_initial_state, num_accepted_tokens,
            bool(activation_mode), pad_slot_id, run_mode,
        )
    )  # fmt: skip


def older(
    x: Tensor, weight: Tensor, conv_states: Tensor, query_start_loc: Tensor, cache_indices: Tensor,
    has_initial_state: Tensor, bias: Tensor | None = None, activation_mode: bool = False, pad_slot_id: int = -1,
) -> Tensor:  # fmt: skip
    return conv.causal_conv1d(
        Call(
            x, weight, conv_states, bias, query_start_loc, cache_indices, has_initial_state, None, activation_mode,
            pad_slot_id, conv.PREFILL,
        )
    )  # fmt: skip


def custom(
    output: Tensor, x: Tensor, weight: Tensor, conv_state: Tensor, bias_opt: Tensor | None,
    query_start_loc_opt: Tensor | None, cache_indices_opt: Tensor | None, initial_state_mode_opt: Tensor | None,
    num_accepted_tokens_opt: Tensor | None, activation_mode: int, pad_slot_id: int, run_mode: int,
) -> Tensor:  # fmt: skip
    if num_accepted_tokens_opt is not None and weight.shape[0] != 4:
        raise RuntimeError(f"num_accepted_tokens with width {weight.shape[0]}: this operator takes it for 4 alone")
    call = Call(
        x, weight, conv_state, bias_opt, query_start_loc_opt, cache_indices_opt, initial_state_mode_opt,
        num_accepted_tokens_opt, bool(activation_mode), pad_slot_id, run_mode, skips_outside=True,
    )  # fmt: skip
    return conv.causal_conv1d(call, output).clone()


def scatter_pa_kv_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor, *,
    compress_lens: Tensor | None = None, compress_seq_offsets: Tensor | None = None, seq_lens: Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:  # fmt: skip
    store = {"Norm": kv.norm, "PA_NZ": kv.fractal}[cache_mode or "PA_NZ"]
    store(key, key_cache, slot_mapping)
    store(value, value_cache, slot_mapping)


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_indices: Tensor) -> None:
    kv.norm(key, key_cache, slot_indices)
    kv.norm(value, value_cache, slot_indices)


def scatter_nd_update_(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    kv.scatter(updates, input, indices)
    return input


def add(namespace: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None = None) -> None:
    """Register one operator with a kernel for the host.

    Args:
        fake: its shape inference; only those that return a tensor need one.
    """
    library = torch.library.Library(namespace, "FRAGMENT")
    name = library.define(schema)
    library.impl(name, on_the_device(kernel), "CPU")
    torch.library.register_fake(f"{namespace}::{name}", fake or (lambda *args, **kwargs: None), lib=library)
    keep(library)


def keep(library: torch.library.Library) -> None:
    """Hold a library for the life of the process: what it registered goes with it."""
    _libraries.append(library)


def clear() -> None:
    """Take away everything that was registered, for a test that needs other operators."""
    for library in _libraries:
        library._destroy()
    _libraries.clear()


def on_the_device(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, unseen by whoever watches what the host asks of torch."""

    @wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return kernel(*args, **kwargs)

    return run


def conv_operator(kind: str) -> None:
    """Register the causal conv1d of one build: ``current``, ``newer``, ``older`` or ``custom``."""

    def like(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.empty_like(x)

    if kind == "custom":
        add("_C_ascend", CUSTOM, custom, lambda output, x, *args, **kwargs: torch.empty_like(x))
    else:
        add(
            "npu",
            {"current": CURRENT, "newer": NEWER, "older": OLDER}[kind],
            older if kind == "older" else current,
            like,
        )


def kv_operators(*kinds: str) -> None:
    """Register ``pa``, ``reshape`` and ``nd``, or those of them that are named."""
    for kind in kinds or ("pa", "reshape", "nd"):
        if kind == "pa":
            add("npu", SCATTER_PA, scatter_pa_kv_cache)
        elif kind == "reshape":
            add("atb", RESHAPE, reshape_and_cache)
        else:
            add("npu", SCATTER_ND, scatter_nd_update_, lambda input, indices, updates: input)
