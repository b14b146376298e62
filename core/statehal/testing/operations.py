"""A pool of every kind with one call of each method, over input tensors whose contents can be changed in place."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from statehal.hookspecs.capabilities import SNAPSHOTS, TRACKING, TREES
from statehal.spec import Attention, ConvRecurrent, Latent
from statehal.testing.target import Target

DRAFTS, CHANNELS, WIDTH = 2, 6, 4
Call = Callable[[], Tensor | None]


class Operations:
    """Calls of all methods, of the backend and of those that fill in for it.

    Attributes:
        pool: its sub-pools are ``kv``, ``mla`` and ``conv``.
        inputs: every tensor that a call reads and does not own, by name; ids and slots are among them.
        outs: buffers for results.
    """

    def __init__(self, target: Target, count: int = 40, *, compile_safe: bool = False) -> None:
        self.target, self.count = target, count
        self.hal = target.binding(compile_safe=compile_safe)
        rows, window = _dtype(target, "store:"), _dtype(target, "window:")
        specs = [
            Attention("kv", (0, 1), 2, 8, rows, v_head_dim=4),
            Latent("mla", (2,), 8, 4, rows),
            ConvRecurrent("conv", (3, 4), CHANNELS, WIDTH, window, verify_tokens=DRAFTS, state=(2, 3)),
        ]
        self.pool = self.hal.allocate(
            self.hal.plan(specs, tokens=2 * count, requests=4 * count, page_size=4, waste_limit=0.9)
        )
        self.kv, self.mla = self.hal.kv(self.pool["kv"]), self.hal.kv(self.pool["mla"])
        self.conv, self.memory = self.hal.conv(self.pool["conv"]), self.hal.memory
        pages, slots = self.pool.alloc(2 * count, ["kv", "mla"]), self.pool["conv"].alloc(4 * count)
        self.tables = {
            "kv": self.pool["kv"].kernel_ids(pages.token_ids()),
            "mla": self.pool["mla"].kernel_ids(pages.token_ids()),
            "conv": self.pool["conv"].kernel_ids(slots.page_ids()),
        }
        self._every = {name: tuple(one.clone() for one in ids.tensors) for name, ids in self.tables.items()}
        self._kinds = {"rows": getattr(torch, rows), "window": getattr(torch, window)}
        for layer in (3, 4):
            weight = _values(CHANNELS, WIDTH, seed=layer).to(self._kinds["window"])
            self.conv.prepare(layer, target.on_device(weight), activation="silu")
        self.inputs = {name: target.on_device(tensor) for name, tensor in self._contents(0).items()}
        self.outs = {
            "q": torch.zeros_like(self.inputs["q"]),
            "x": torch.zeros_like(self.inputs["x"]),
            "ids": torch.zeros_like(self.inputs["virtual"]),
            "more ids": torch.zeros_like(self.inputs["virtual"]),
            "rows": torch.zeros_like(self.inputs["view rows"]),
        }
        self.scratch = target.on_device(torch.zeros(count + 8, 3))

    def fill(self, seed: int) -> None:
        """Give the inputs other contents, at the same addresses."""
        for name, tensor in self._contents(seed).items():
            self.inputs[name].copy_(tensor)
        generator = torch.Generator().manual_seed(seed)
        for name, ids in self.tables.items():
            order = self.target.on_device(torch.randperm(ids.shape[0], generator=generator))
            for tensor, every in zip(ids.tensors, self._every[name], strict=True):
                tensor.copy_(every[order])

    def _contents(self, seed: int) -> dict[str, Tensor]:
        n, generator = self.count, torch.Generator().manual_seed(seed)
        rows, window = self._kinds["rows"], self._kinds["window"]
        return {
            "q": _values(n, 4, 8, seed=seed).to(rows),
            "k": _values(n, 2, 8, seed=seed + 1).to(rows),
            "v": _values(n, 2, 4, seed=seed + 2).to(rows),
            "kv_c": _values(n, 8, seed=seed).to(rows),
            "k_pe": _values(n, 4, seed=seed).to(rows),
            "positions": torch.randint(0, 32, (n,), generator=generator),
            "cos_sin": _values(32, 4, seed=7),
            "x": _values(DRAFTS * n, CHANNELS, seed=seed).to(window),
            "starts": torch.arange(n + 1) * DRAFTS,
            "initial": torch.randint(0, 2, (n,), generator=generator).bool(),
            "accepted": torch.randint(1, DRAFTS + 1, (n,), generator=generator),
            "ones": torch.ones(n, dtype=torch.int64),
            "parents": torch.arange(DRAFTS).sub(1).repeat(n),
            "path": torch.arange(DRAFTS).repeat(n, 1),
            "numbers": torch.arange(n),
            "virtual": torch.randperm(n, generator=generator) - 1,
            "table": torch.cat([torch.randperm(n, generator=generator), torch.zeros(1, dtype=torch.int64)]),
            "pages": torch.randperm(n, generator=generator),
            "other pages": torch.randperm(n, generator=generator),
            "bytes": torch.randint(0, 256, (1, n, 12), generator=generator).to(torch.uint8),
            "view rows": _values(n, 3, seed=seed),
        }

    def calls(self, n: int) -> Mapping[str, Call]:
        """One call a method with ``n`` tokens, requests, ids or pages; by method, then words for what is special."""
        return self.kv_calls(n) | self.conv_calls(n) | self.memory_calls(n)

    def kv_calls(self, n: int) -> dict[str, Call]:
        """Of ``KVWriter``."""
        given, table = {name: tensor[:n] for name, tensor in self.inputs.items()}, self.tables
        q, k, v, ids = given["q"], given["k"], given["v"], table["kv"][:n]
        rest, mla = table["kv"][self.count : self.count + n], table["mla"][:n]
        positions, cos_sin, out = given["positions"], self.inputs["cos_sin"], self.outs["q"][:n]
        return {
            "kv.write": lambda: self.kv.write(0, ids, k, v),
            "kv.rope_write": lambda: self.kv.rope_write(1, ids, q, k, v, positions, cos_sin, q_out=out),
            "kv.write_latent": lambda: self.mla.write_latent(2, mla, given["kv_c"], given["k_pe"]),
            "kv.move": lambda: self.kv.move(rest, ids),
        }

    def conv_calls(self, n: int) -> dict[str, Call]:
        """Of ``CausalConv1d``; optional arguments that are claimed have calls of their own."""
        conv, slots, more = self.conv, self.tables["conv"][:n], self.tables["conv"][self.count : self.count + n]
        states = self.tables["conv"][2 * self.count :][: DRAFTS * n].reshape(n, DRAFTS)
        given = {name: tensor[:n] for name, tensor in self.inputs.items()}
        x, out, starts = self.inputs["x"][: DRAFTS * n], self.outs["x"][: DRAFTS * n], self.inputs["starts"][: n + 1]
        one, one_out, parents = x[:n], out[:n], self.inputs["parents"][: DRAFTS * n]
        accepted, initial, path, ones = given["accepted"], given["initial"], given["path"], given["ones"]
        points = given["numbers"], ones, more
        found: dict[str, Call] = {
            "conv.prefill": lambda: conv.prefill(3, x, starts, slots, initial, out=out),
            "conv.decode": lambda: conv.decode(3, one, slots, out=one_out),
            "conv.verify": lambda: conv.verify(3, x, slots, out=out),
            "conv.commit": lambda: conv.commit(slots, accepted, state_slots=states),
            "conv.copy_slots": lambda: conv.copy_slots(slots, more),
            "conv.zero_slots": lambda: conv.zero_slots(slots),
            "conv.read_state": lambda: conv.read_state(slots),
        }
        claims = self.target.info.capabilities
        if SNAPSHOTS in claims:
            found["conv.prefill with snapshots"] = lambda: conv.prefill(3, x, starts, slots, snapshots=points, out=out)
        if TREES in claims:
            found["conv.verify of trees"] = lambda: conv.verify(3, x, slots, parents=parents, out=out)
            found["conv.commit of trees"] = lambda: conv.commit(slots, accepted, path=path, state_slots=states)
        if TRACKING in claims:
            found["conv.commit with tracking"] = lambda: conv.commit(
                slots, accepted, state_slots=states, track_slots=more, track_accepted=ones
            )
        return found

    def memory_calls(self, n: int) -> dict[str, Call]:
        """Of those ``MemoryOps`` that the flags speak of, and of rows."""
        memory, table = self.memory, self.inputs["table"]
        given = {name: tensor[:n] for name, tensor in self.inputs.items()}
        outs = self.outs["ids"][:n], self.outs["more ids"][:n]
        ids, pages, others, whole = given["virtual"], given["pages"], given["other pages"], self.inputs["bytes"]
        scratch, rows, out = self.scratch, given["view rows"], self.outs["rows"][:n]
        return {
            "memory.translate": lambda: memory.translate(ids, table, 4, (4, 96), outs, "tokens"),
            "memory.translate of pages": lambda: memory.translate(ids, table, 4, (1, 9), outs, "pages"),
            "memory.update_table": lambda: memory.update_table(table, pages, others),
            "memory.copy_pages": lambda: memory.copy_pages((whole,), pages, others),
            "memory.zero_pages": lambda: memory.zero_pages((whole,), pages),
            "memory.gather": lambda: memory.gather(scratch, ids, out=out),
            "memory.scatter": lambda: memory.scatter(scratch, ids, rows, first=2),
        }

    def state(self) -> list[Tensor]:
        """Everything that a call may have written, copied."""
        written = [self.pool.buffer, self.scratch, self.inputs["table"], self.inputs["bytes"], *self.outs.values()]
        return [tensor.clone() for tensor in written]

    def restore(self, state: list[Tensor]) -> None:
        """What ``state`` gave, again."""
        written = [self.pool.buffer, self.scratch, self.inputs["table"], self.inputs["bytes"], *self.outs.values()]
        for tensor, kept in zip(written, state, strict=True):
            tensor.copy_(kept)


def _dtype(target: Target, prefix: str) -> str:
    """A dtype without casts that the backend claims."""
    wanted = [name for name in ("bfloat16", "float16", "float32") if prefix + name in target.info.capabilities]
    return wanted[0] if wanted else "bfloat16"


def _values(*shape: int, seed: int) -> Tensor:
    """Multiples of an eighth from -4 to 4, exact in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-32, 33, shape, generator=generator) / 8
