"""A rank without a model: what one wrote, two and four find, byte for byte."""

from typing import Any

import torch

from offload_table.models import LAYOUTS
from offload_table.rows import BLOCK, PROMPT
from statehal import Binding, bind, plan
from statehal.portability import Grouping, Topology, shard
from statehal.portability.offload import Offloader, RankPool
from statehal.portability.store import FileStore
from statehal.spec import Attention, ConvRecurrent, Latent, Spec

SPECS: tuple[Spec, ...] = (
    Attention("full", (0, 2), 4, 16, "bfloat16"),
    Attention("window", (1,), 4, 16, "bfloat16", window=40),
    Attention("fp8", (3,), 4, 32, "float8_e4m3fn"),
    Latent("latent", (4,), 24, 8, "bfloat16"),
    ConvRecurrent("gdn", (5,), 32, 4, "bfloat16", sections=(8, 8, 16), section_heads=(4, 4, 8), state=(8, 2, 3)),
)
TOKENS = [(7 * i) % 97 for i in range(PROMPT)]
STORED = (PROMPT - 1) // BLOCK * BLOCK


def rows(name: str, *shape: int) -> torch.Tensor:
    """What the whole model holds, the same in every process: numbers that bfloat16 holds, some past fp8's maximum."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    return torch.randint(-500, 500, shape, generator=generator).bfloat16()


def share(whole: torch.Tensor, dim: int, tensor: int, rank: int) -> torch.Tensor:
    """A rank's run of equal runs, by counting."""
    size = whole.shape[dim] // tensor
    return whole.narrow(dim, rank * size, size)


def fp8(whole: torch.Tensor) -> torch.Tensor:
    """The format saturates at 448."""
    return whole.float().clamp(-448, 448).to(torch.float8_e4m3fn)


def flat(rows: torch.Tensor) -> torch.Tensor:
    """All bytes, in order."""
    return rows.contiguous().flatten().view(torch.uint8)


class Rank:
    """A rank's pool, and an offloader on it."""

    def __init__(self, directory: str, job: dict[str, Any], rank: int) -> None:
        self.tensor, self.rank = job["tensor"], rank
        topology, layout = Topology(tensor=self.tensor), LAYOUTS[job["layout"]]
        self.hal: Binding = bind("cpu", "reference")

        def layouts(spec: Spec, size: int) -> Any:
            return self.hal.layout(spec, size) if spec.kind == "slots" else layout(spec, size)

        made = plan(
            shard(SPECS, topology, rank), tokens=2 * PROMPT, requests=2, page_size=job["page_size"], layouts=layouts,
            waste_limit=0.9,
        )  # fmt: skip
        self.pool = self.hal.allocate(made)
        grouping = Grouping.of(SPECS, object_tokens=BLOCK)
        self.held = RankPool(self.hal, self.pool, SPECS, topology, rank, grouping, model="none", revision="0")
        self.offloader = Offloader(FileStore(directory), self.held, host_bytes=8 << 20)
        names = [spec.name for spec in SPECS if spec.kind == "tokens"]
        self.pages, self.slot = self.pool.alloc(STORED, names), self.pool.alloc(1, "gdn")

    def write(self) -> list[dict[str, Any]]:
        """Fill the pool by the operations of a backend, and store it."""
        for spec in SPECS:
            if isinstance(spec, ConvRecurrent):
                self._write_slot(spec)
                continue
            ids, writer = self.pool[spec.name].kernel_ids(self.pages.token_ids()), self.hal.kv(self.pool[spec.name])
            for layer in spec.layers:
                if isinstance(spec, Latent):
                    kv_c, k_pe = rows(f"latent{layer}", STORED, 32).split([24, 8], 1)
                    writer.write_latent(layer, ids, kv_c, k_pe)
                elif isinstance(spec, Attention):
                    k, v = rows(f"{spec.name}{layer}", 2, STORED, 4, spec.head_dim)
                    writer.write(layer, ids, k, v)
        prefix = self.held.prefix(TOKENS)
        stored = self.offloader.store(prefix, [self.pages, self.slot], stop=STORED)
        stored.wait()
        assert all(stored.results), stored.results
        return []

    def read(self) -> list[dict[str, Any]]:
        """Find and load it, and compare every byte that a request needs to go on; returns a line for each sub-pool."""
        prefix = self.held.prefix(TOKENS)
        found = self.offloader.lookup(prefix)
        load = self.offloader.load(prefix, [self.pages, self.slot], stop=found.longest)
        load.wait()
        result = []
        for spec in SPECS:
            pairs = self._slot(spec) if isinstance(spec, ConvRecurrent) else self._tokens(spec, load.length)
            compared = [(flat(held), flat(wanted)) for held, wanted in pairs]
            count, wrong = sum(a.numel() for a, _ in compared), sum(int((a != b).sum()) for a, b in compared)
            result.append(
                {"subpool": spec.name, "asked": PROMPT, "reused": load.length, "bytes": count, "wrong": wrong}
            )
        return result

    def _tokens(self, spec: Spec, length: int) -> "list[tuple[torch.Tensor, torch.Tensor]]":
        first = length - min(length, (getattr(spec, "window", None) or length + 1) - 1)
        sub, pairs = self.pool[spec.name], []
        ids = sub.kernel_ids(self.pages.token_ids(first, length))
        for layer in spec.layers:
            if isinstance(spec, Latent):
                wanted = {"latent": rows(f"latent{layer}", STORED, 32)[first:length]}
            else:
                assert isinstance(spec, Attention)
                both = share(rows(f"{spec.name}{layer}", 2, STORED, 4, spec.head_dim), 2, self.tensor, self.rank)
                k, v = fp8(both) if spec.name == "fp8" else both
                wanted = {"k": k[first:length], "v": v[first:length]}
            for field, rows_wanted in wanted.items():
                held = sub.view(field, layer, "row").view(torch.uint8)[ids.of(sub.layout.form(field, "row"))]
                pairs.append((held, rows_wanted))
        return pairs

    def _write_slot(self, spec: ConvRecurrent) -> None:
        sub, conv = self.pool["gdn"], self.hal.conv(self.pool["gdn"])
        slots = sub.kernel_ids(self.slot.page_ids())
        conv.prepare(5, torch.ones(spec.channels, spec.width, dtype=torch.bfloat16))
        conv.prefill(5, rows("gdn", 9, spec.channels), torch.tensor([0, 9]), slots)
        conv.commit(slots, torch.ones(1, dtype=torch.int64))
        page = int(sub.physical_ids(self.slot.page_ids()).tensor[0])
        sub.view("state", 5, "page")[page, 0] = rows("state", 8, 2, 3).float()

    def _slot(self, spec: ConvRecurrent) -> "list[tuple[torch.Tensor, torch.Tensor]]":
        sub = self.pool["gdn"]
        window = self.hal.conv(sub).read_state(sub.kernel_ids(self.slot.page_ids()))[0, 0]
        assert spec.sections is not None
        sections = rows("gdn", 9, spec.channels)[-(spec.width - 1) :].split(list(spec.sections), 1)
        wanted = torch.cat([share(one, 1, self.tensor, self.rank) for one in sections], 1)
        page = int(sub.physical_ids(self.slot.page_ids()).tensor[0])
        state = share(rows("state", 8, 2, 3).float(), 0, self.tensor, self.rank)
        return [(window, wanted), (sub.view("state", 5, "page")[page, 0], state)]
