"""Whether graphs of the device, and compiled functions, leave the bytes that plain calls leave."""

import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from gpu_parts.clock import capture, failure
from gpu_parts.figures import Operation, Proof
from statehal import Attention, ConvRecurrent, bind


def graphs(makers: Iterable[Callable[[], Operation]], device: str) -> Iterable[Proof]:
    """Of each operation: a replay writes what the call writes, also after its inputs have changed where they lie."""
    for make in makers:
        started = time.perf_counter()
        name = getattr(make, "func", make).__name__
        try:
            made = make()
            name = f"{made.name}, {made.case}"
            if torch.device(device).type != "cuda":
                made.calls[0]()
                yield Proof(name, "skipped", "the device has no graphs; it was called once")
                continue
            reason = difference(made)
            proof = Proof(name, "failed" if reason else "passed", reason)
        except Exception as error:
            proof = Proof(name, "failed", failure(error))
        proof.seconds = round(time.perf_counter() - started, 2)
        yield proof


def difference(made: Operation) -> str:
    """What a replay does otherwise than a call; empty where nothing."""
    call = made.calls[0]
    before = [one.clone() for one in made.written]

    def restored(run: Callable[[], object]) -> list[Tensor]:
        for one, old in zip(made.written, before, strict=True):
            one.copy_(old)
        run()
        torch.cuda.synchronize()
        return [one.clone() for one in made.written]

    plain = restored(call)
    graph = capture(call)
    if not _same(restored(graph.replay), plain):
        return "a replay writes other bytes than the call"
    made.renew()
    before = [one.clone() for one in made.written]
    renewed = restored(call)
    if not _same(restored(graph.replay), renewed):
        return "after a change of the inputs a replay writes other bytes than the call"
    return ""


def _same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(_bits(a), _bits(b)) for a, b in zip(one, two, strict=True))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


class Step:
    """A function over a pool of its own, of the same bytes whenever it is made."""

    def __init__(self, device: str, backend: str) -> None:
        hal = bind(device, backend, compile_safe=True)
        specs = Attention("kv", (0,), 2, 64, "bfloat16"), ConvRecurrent("conv", (1,), 64, 4, "bfloat16")
        self.pool = hal.allocate(hal.plan(specs, tokens=32, requests=4, page_size=16, waste_limit=0.95))
        kv, conv = hal.kv(self.pool["kv"]), hal.conv(self.pool["conv"])
        draw = torch.Generator().manual_seed(0)

        def values(*shape: int) -> Tensor:
            return torch.randn(shape, generator=draw).bfloat16().to(device)

        conv.prepare(1, values(64, 4), values(64), activation="silu")
        tokens = self.pool["kv"].kernel_ids(self.pool.alloc(3, "kv").token_ids())
        slots = self.pool["conv"].kernel_ids(self.pool.alloc(3, "conv").page_ids())
        ones = torch.ones(3, dtype=torch.int32, device=device)
        self.inputs = values(3, 2, 64), values(3, 2, 64), values(3, 64)

        def step(k: Tensor, v: Tensor, x: Tensor) -> Tensor:
            kv.write(0, tokens, k * 2, v)
            out = conv.decode(1, x, slots)
            conv.commit(slots, ones)
            kv.write(0, tokens[:1], k[:1], v[:1])
            return out.float() + conv.decode(1, x, slots).float()

        self.step = step


def compiled(device: str, backend: str, compiler: str) -> Proof:
    """A function that writes, convolves, commits and uses its output, as one graph of ``torch.compile``."""
    started = time.perf_counter()
    name = f"write, decode, commit, write, decode by {compiler}"
    try:
        plain, other = Step(device, backend), Step(device, backend)
        wanted = plain.step(*plain.inputs)
        torch._dynamo.reset()
        got = torch.compile(other.step, backend=compiler, fullgraph=True)(*other.inputs)
        reason = ""
        if not torch.equal(got, wanted):
            reason = f"its result differs by up to {(got - wanted).abs().max().item():.2e}"
        elif not torch.equal(plain.pool.buffer, other.pool.buffer):
            reason = "it leaves other bytes in the pool than the plain function"
        proof = Proof(name, "failed" if reason else "passed", reason)
    except Exception as error:
        proof = Proof(name, "failed", failure(error))
    proof.seconds = round(time.perf_counter() - started, 2)
    return proof


def line(proof: Proof) -> str:
    """A row of the table."""
    return f"{proof.status:8}{proof.name:62}{proof.seconds:6.1f} s  {proof.reason}"
