"""The operations that are measured, at the sizes of today's hybrids: 8192 channels, 8 heads of 128."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from statehal.bench.fixed import fixed_costs
from statehal.bench.memory import gather_scatter, kernel_ids, kv_write, kv_write_fp8, rope_write
from statehal.bench.operation import BEYOND_CACHES, Call, Operation, counted
from statehal.binding import Binding
from statehal.hookspecs import CausalConv1d
from statehal.ids import KernelIds
from statehal.pool import SubPool
from statehal.spec import ConvRecurrent

CHANNELS, WIDTH, DRAFTS = 8192, 4, 8
ROW = CHANNELS * 2
"""Bytes of a row of bfloat16."""


def conv_prefill(binding: Binding) -> Iterator[Operation]:
    """One sequence into an empty slot, bias and silu: every input is read once and every output written once."""
    for tokens in (512, 2048, 4096):
        sub = _slots(binding, layers=1, requests=1)
        conv = binding.conv(sub)
        _prepare(conv, 1)
        ids, loc = _ids(sub, 1), torch.tensor([0, tokens])
        x = torch.randn(tokens, CHANNELS).bfloat16()
        call = partial(conv.prefill, 0, x, loc, ids, out=torch.empty_like(x))
        yield Operation("conv prefill", counted(tokens, "token"), 2 * tokens * ROW, [call])


def conv_decode(binding: Binding) -> Iterator[Operation]:
    """One token a request, counted as if its window were shifted: live rows read and written, an input and an output.

    A ring reads the live rows and writes one: 6 accesses of a row where 8 are counted.
    """
    for requests in (1, 16, 256):
        nbytes = (2 * (WIDTH - 1) + 2) * ROW * requests
        layers = _layers(nbytes)
        sub = _slots(binding, layers=layers, requests=requests)
        conv, ids = binding.conv(sub), _ids(sub, requests)
        _prepare(conv, layers)
        rows = [torch.randn(requests, CHANNELS).bfloat16() for _ in range(layers)]
        calls: list[Call] = [partial(conv.decode, n, x, ids, out=torch.empty_like(x)) for n, x in enumerate(rows)]
        yield Operation("conv decode", counted(requests, "request"), nbytes, calls)


def conv_verify(binding: Binding) -> Iterator[Operation]:
    """Eight tokens a request and the commit of half: 27 accesses of a row."""
    for requests in (1, 16):
        nbytes = (WIDTH - 1 + 3 * DRAFTS) * ROW * requests
        layers = _layers(nbytes)
        sub = _slots(binding, layers=layers, requests=requests)
        conv, ids = binding.conv(sub), _ids(sub, requests)
        _prepare(conv, layers)
        accepted = torch.full((requests,), DRAFTS // 2)
        rows = [torch.randn(requests * DRAFTS, CHANNELS).bfloat16() for _ in range(layers)]

        calls: list[Call] = [
            partial(_verify, conv, n, x, ids, accepted, torch.empty_like(x)) for n, x in enumerate(rows)
        ]
        yield Operation("conv verify + commit", counted(requests, "request"), nbytes, calls)


OPERATIONS: tuple[Callable[[Binding], Iterator[Operation]], ...] = (
    conv_prefill,
    conv_decode,
    conv_verify,
    kv_write,
    kv_write_fp8,
    rope_write,
    kernel_ids,
    gather_scatter,
    fixed_costs,
)
"""Each makes its operations one after the other, so that only one has its memory at a time."""


def _verify(
    conv: CausalConv1d, layer: int, x: torch.Tensor, slots: KernelIds, accepted: torch.Tensor, out: torch.Tensor
) -> None:
    conv.verify(layer, x, slots, out=out)
    conv.commit(slots, accepted)


def _layers(nbytes: int) -> int:
    return max(1, min(256, BEYOND_CACHES // nbytes))


def _slots(binding: Binding, layers: int, requests: int) -> SubPool:
    spec = ConvRecurrent("gdn", tuple(range(layers)), CHANNELS, WIDTH, "bfloat16", verify_tokens=DRAFTS)
    return binding.allocate(binding.plan([spec], tokens=16, requests=requests))["gdn"]


def _ids(sub: SubPool, requests: int) -> KernelIds:
    return sub.kernel_ids(sub.alloc(requests).page_ids())


def _prepare(conv: CausalConv1d, layers: int) -> None:
    weight, bias = torch.randn(CHANNELS, WIDTH).bfloat16(), torch.randn(CHANNELS).bfloat16()
    for layer in range(layers):
        conv.prepare(layer, weight, bias, activation="silu")
