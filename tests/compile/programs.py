"""Pools with known state, and one call of every operator, for tests under ``torch.compile``."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import statehal
import statehal.reference
from plugin_fakes import discover
from statehal import Attention, ConvRecurrent, KernelIds
from statehal.spec import Latent

TOKENS, SLOTS, DRAFTS = 8, 3, 2
SPECS = (
    Attention("kv", (0, 1), 2, 4, "float32"),
    Attention("half", (2,), 1, 8, "bfloat16"),
    Latent("mla", (3,), 8, 4, "float32"),
    ConvRecurrent("conv", (4, 5), 3, 4, "float32", verify_tokens=DRAFTS, state=(2, 3), state_dtype="float32"),
)


def values(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values of -4 to 3.875 in steps of an eighth, exact in every dtype; may be made inside of a graph."""
    count = torch.arange(math.prod(shape)).reshape(shape)
    return (((count * 37 + seed * 11 + len(shape)) % 64 - 32) / 8).to(dtype)


class State:
    """A pool of all kinds with 8 tokens and 3 slots in use, bound; equal bytes whenever it is made.

    Attributes:
        ids: kernel ids ``[8]`` by sub-pool; of ``conv`` the slots ``[3]``.
        spare: slots ``[3]`` that no step uses.
    """

    def __init__(self, compile_safe: bool = True, plugins: dict[str, object] | None = None, **options: Any) -> None:
        registry = discover({"reference": statehal.reference, **(plugins or {})})
        self.hal = statehal.bind("cpu", compile_safe=compile_safe, registry=registry, **options)
        self.pool = self.hal.allocate(self.hal.plan(SPECS, tokens=64, requests=9, page_size=4, waste_limit=0.95))
        self.kv, self.half, self.mla = (self.hal.kv(self.pool[name]) for name in ("kv", "half", "mla"))
        self.conv = self.hal.conv(self.pool["conv"])
        for layer in (4, 5):
            self.conv.prepare(layer, values(3, 4, seed=layer), values(3, seed=layer), activation="silu")
        self.pages = self.pool.alloc(TOKENS, ["kv", "half", "mla"])
        self.slots = self.pool["conv"].alloc(2 * SLOTS)
        self.ids: dict[str, KernelIds] = {}
        self.translate()

    def translate(self) -> None:
        """Make ``ids`` and ``spare`` again, as a host does after a compaction."""
        self.ids = {name: self.pool[name].kernel_ids(self.pages.token_ids()) for name in ("kv", "half", "mla")}
        slots = self.pool["conv"].kernel_ids(self.slots.page_ids())
        self.ids["conv"], self.spare = slots[:SLOTS], slots[SLOTS:]


def same_bytes(one: State, two: State) -> bool:
    """Whether two pools hold the same bytes."""
    return torch.equal(one.pool.buffer, two.pool.buffer)


def run(program: Callable[..., Any], *args: Any, backend: Any = "aot_eager", **options: Any) -> Any:
    """Compile a program as one graph, from scratch, and call it."""
    torch._dynamo.reset()
    return torch.compile(program, backend=backend, fullgraph=True, **options)(*args)


def calls(state: State) -> dict[str, tuple[Sequence[Any], dict[str, Any]]]:
    """Arguments for each operator, by its name; optional ones are given."""
    tables = {name: list(ids.tensors) for name, ids in state.ids.items()}
    slots, spare = tables["conv"], list(state.spare.tensors)
    at = {
        name: (state.pool.buffer, bound.write.__self__._bound)  # type: ignore[attr-defined]
        for name, bound in (("kv", state.kv), ("half", state.half), ("mla", state.mla))
    }
    conv = (state.pool.buffer, state.conv.decode.__self__._bound)  # type: ignore[attr-defined]
    k, v, q = values(TOKENS, 2, 4), values(TOKENS, 2, 4, seed=1), values(TOKENS, 4, 4)
    x = values(SLOTS, 3)
    scales = {"k_scale": None, "v_scale": None, "k_number": None, "v_number": None}
    rope = {"interleaved": True, "rope_sections": None, "q_norm": values(4), "k_norm": values(4), "eps": 1e-5}
    two, three = torch.full((SLOTS,), 2), torch.tensor([0, 1, 2, 3])
    return {
        "kv_write": ((*at["kv"], 0, tables["kv"], k, v), scales),
        "kv_rope_write": (
            (*at["kv"], 0, tables["kv"], q, k, v, torch.arange(TOKENS), values(16, 4)),
            {**rope, "q_out": torch.zeros_like(q), "k_out": torch.zeros_like(k), **scales},
        ),
        "kv_write_latent": (
            (*at["mla"], 3, tables["mla"], values(TOKENS, 8), values(TOKENS, 4)),
            {
                "norm": values(8),
                "eps": 1e-6,
                "positions": torch.arange(TOKENS),
                "cos_sin": values(16, 4),
                "interleaved": False,
                "scale": None,
                "number": None,
            },
        ),
        "kv_move": ((*at["kv"], [ids[:2] for ids in tables["kv"]], [ids[4:6] for ids in tables["kv"]]), {}),
        "conv_prefill": (
            (*conv, 4, x, three, slots, torch.tensor([True, False, True])),
            {
                "initial_slots": spare,
                "snapshot_sequences": torch.tensor([1]),
                "snapshot_ends": torch.tensor([1]),
                "snapshot_slots": [ids[:1] for ids in spare],
                "out": torch.zeros_like(x),
            },
        ),
        "conv_decode": ((*conv, 4, x, slots), {"out": torch.zeros_like(x)}),
        "conv_verify": (
            (*conv, 4, values(5, 3), slots),
            {
                "query_start_loc": torch.tensor([0, 2, 3, 5]),
                "parents": torch.tensor([-1, 0, -1, -1, 0]),
                "out": torch.zeros(5, 3),
            },
        ),
        "conv_commit": (
            (*conv, slots, two),
            {
                "path": torch.tensor([[0, 1]] * SLOTS),
                "state_slots": [torch.stack([ids, ids], 1) for ids in spare],
                "track_slots": [],
                "track_accepted": None,
            },
        ),
        "conv_copy_slots": ((*conv, slots, spare), {}),
        "conv_zero_slots": ((*conv, slots), {}),
        "conv_read_state": ((*conv, slots, [2, SLOTS, 3, 3], torch.float32), {}),
    }
