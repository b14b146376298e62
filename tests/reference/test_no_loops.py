"""The number of torch calls does not grow with tokens or requests, and none of them asks the device for a value."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import statehal
from reference.conv_oracle import rig as conv_rig
from reference.kv_oracle import LAYOUTS
from reference.kv_oracle import rig as kv_rig
from statehal.ids import KernelIds
from statehal.layout import ConvStateLayout
from statehal.reference.memory_ops import ReferenceMemoryOps

SYNCS = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal", "unique")


class Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__.split(".")[0])
        return func(*args, **(kwargs or {}))


def calls_of(run: Callable[[], object]) -> list[str]:
    calls = Calls()
    with calls:
        run()
    return calls.names


def check(make: Callable[[int], Callable[[], object]]) -> None:
    few, many = calls_of(make(2)), calls_of(make(70))
    assert few == many
    assert few
    assert not [name for name in many if name in SYNCS]


@pytest.mark.parametrize("name", ["page-major NHD row", "page-major HND block", "shuffled V", "nz page"])
def test_kv_writes_and_moves(name: str) -> None:
    assert name in LAYOUTS
    made = kv_rig(name, 3, "bfloat16", tokens=70)
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    k, v = (torch.ones(70, made.facts.heads, width).bfloat16() for width in made.facts.widths)
    check(lambda n: lambda: writer.write(7, made.ids[:n], k[:n], v[:n]))
    check(lambda n: lambda: writer.move(made.ids[:n], made.ids[-n:]))
    check(lambda n: lambda: made.sub.kernel_ids(made.sub.space("virtual").assume(torch.arange(n))))


def test_latent_writes() -> None:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([statehal.Latent("mla", (0,), 8, 4, "bfloat16")], tokens=80, page_size=4))
    ids = pool["mla"].kernel_ids(pool.alloc(70).token_ids())
    c, p = torch.ones(70, 8).bfloat16(), torch.ones(70, 4).bfloat16()
    check(lambda n: lambda: hal.kv(pool["mla"]).write_latent(0, ids[:n], c[:n], p[:n]))


@pytest.mark.parametrize(
    "window", [ConvStateLayout(), ConvStateLayout("channels_first", 4, "offset"), ConvStateLayout(protocol="rollback")]
)
@pytest.mark.parametrize("drafts", [1, 3])
def test_conv(window: ConvStateLayout, drafts: int) -> None:
    made = conv_rig(4, 3, layers=(0, 1), window=window, slots=70, verify_tokens=drafts, state=(2, 2))
    conv, x = made.conv, torch.ones(700, 3)

    def slots(n: int) -> KernelIds:
        return made.slots[:n]

    def prefill(n: int, tokens: int, initial: bool) -> Callable[[], object]:
        loc, has = torch.arange(n + 1) * tokens, torch.ones(n, dtype=torch.bool) if initial else None
        sources = slots(n) if initial else None
        return lambda: conv.prefill(0, x[: n * tokens], loc, slots(n), has, initial_slots=sources)

    def verify(n: int, tree: bool) -> Callable[[], object]:
        loc = torch.arange(n + 1) * drafts
        parents = torch.arange(n * drafts) % drafts - 1 if tree else None
        return lambda: conv.verify(0, x[: n * drafts], slots(n), query_start_loc=loc, parents=parents)

    def commit(n: int, tree: bool) -> Callable[[], object]:
        ones, path = torch.ones(n, dtype=torch.int64), torch.arange(drafts).expand(n, -1)
        states = made.slots[(torch.arange(n)[:, None] + torch.arange(drafts)) % 70]
        options: dict[str, Any] = {"path": path} if tree else {}
        return lambda: conv.commit(
            slots(n), ones, state_slots=states, track_slots=slots(n), track_accepted=ones, **options
        )

    def snapshots(n: int) -> Callable[[], object]:
        points = torch.arange(n), torch.arange(n), slots(n)
        return lambda: conv.prefill(0, x[: n * 10], torch.arange(n + 1) * 10, slots(n), snapshots=points)

    for tree in (False, True):
        check(lambda n, tree=tree: verify(n, tree))  # type: ignore[misc]
        check(lambda n, tree=tree: commit(n, tree))  # type: ignore[misc]
    check(snapshots)
    check(lambda n: lambda: conv.decode(0, x[:n], slots(n)))
    for initial in (False, True):
        check(lambda n, initial=initial: prefill(n, 10, initial))  # type: ignore[misc]
        assert calls_of(prefill(3, 1, initial)) == calls_of(prefill(3, 200, initial))
    check(lambda n: lambda: conv.commit(slots(n), torch.ones(n, dtype=torch.int32)))
    check(lambda n: lambda: conv.copy_slots(slots(n), slots(n)))
    check(lambda n: lambda: conv.zero_slots(slots(n)))
    check(lambda n: lambda: conv.read_state(slots(n)))


def test_memory_operations() -> None:
    ops = ReferenceMemoryOps()
    view, pages = torch.zeros(80, 3), torch.zeros(1, 80, 4, dtype=torch.uint8)
    ids, table = torch.arange(80), torch.zeros(80, dtype=torch.int64)
    outs = torch.zeros(2, 80, dtype=torch.int64)
    check(lambda n: lambda: ops.translate(ids[:n], table, 4, (1, 2), (outs[0, :n], outs[1, :n]), "tokens"))
    check(lambda n: lambda: ops.translate(ids[:n], None, 4, (1,), (outs[0, :n],), "pages"))
    check(lambda n: lambda: ops.update_table(table, ids[:n], ids[:n]))
    check(lambda n: lambda: ops.copy_pages((pages,), ids[:n], ids[:n]))
    check(lambda n: lambda: ops.zero_pages((pages,), ids[:n]))
    check(lambda n: lambda: ops.gather(view, ids[:n]))
    check(lambda n: lambda: ops.gather(view, ids.view(-1, 1)[:n]))
    check(lambda n: lambda: ops.scatter(view, ids[:n], torch.ones(80, 3)[:n], first=4))


def test_the_count_notices_a_loop() -> None:
    with pytest.raises(AssertionError):
        check(lambda n: lambda: [torch.ones(1) for _ in range(n)])
    with pytest.raises(AssertionError):
        check(lambda n: lambda: torch.ones(n).sum().item())
