"""Full-attention ids given to a sliding-window layer, on every backend that is ready on the CPU; prints JSON.

Triton's backends are ready where ``TRITON_INTERPRET=1``.

Entries of tokens are 128 bytes, pages have 4, and the two sub-pools share slabs of a page. A virtual page is page 1 of
``"swa"`` and page 23 of ``"full"``, whose kernel ids are 92 to 95. Layer 1 has the first 64 bytes of an entry of
``"swa"``: K, then V.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from plugin_fakes import point
from statehal.binding import Binding, bind
from statehal.errors import WrongIdSpace
from statehal.hookspecs import PoolLayoutRequest, hookimpl
from statehal.ids import IdSpace
from statehal.layout import PoolLayout, token_major
from statehal.pool import StatePool
from statehal.registry import Registry
from statehal.registry.scan import installed
from statehal.spec import Attention
from statehal.testing import CHECKS, Target, run_check

ROW = torch.full((4, 1, 8), 0x41424344, dtype=torch.int32).view(torch.float32)
"""Rows no byte of which is zero."""

KIT = [f"kv_refusals/{method}_takes_ids_of_its_own_space" for method in ("write", "rope_write", "write_latent", "move")]


class TokenMajor:
    """Lays out every backend's pools as entries of tokens."""

    @hookimpl
    def statehal_pool_layout(self, request: PoolLayoutRequest) -> PoolLayout:
        return token_major(request.spec, request.page_size, align=16)


@contextmanager
def unguarded() -> Iterator[None]:
    """Without the one check of ids that all backends share."""
    right = IdSpace.accept
    IdSpace.accept = lambda self, ids, where: ids.tensors  # type: ignore[method-assign]
    try:
        yield
    finally:
        IdSpace.accept = right  # type: ignore[method-assign]


def scene(registry: Registry, backend: str) -> tuple[Binding, StatePool, Any]:
    """The pool, and the virtual page as ids of tokens."""
    hal = bind("cpu", backend, registry=registry)
    swa = Attention("swa", (1, 3), kv_heads=1, head_dim=8, dtype="float32", window=8)
    full = Attention("full", (0, 2), kv_heads=1, head_dim=8, dtype="float32")
    pool = hal.allocate(hal.plan([swa, full], tokens=200, page_size=4))
    first = pool.alloc(4, "swa")
    pool.alloc(21 * 4, "full")
    pool.free(first)
    ids = pool.alloc(4).token_ids()
    pool.flush()
    assert pool["swa"].kernel_ids(ids).tensor.tolist() == [4, 5, 6, 7]
    assert pool["full"].kernel_ids(ids).tensor.tolist() == [92, 93, 94, 95]
    return hal, pool, ids


def written(pool: StatePool) -> list[int]:
    """The bytes that are not zero any more."""
    found: list[int] = pool.buffer.nonzero()[:, 0].tolist()
    return found


def outcome(registry: Registry, backend: str) -> dict[str, Any]:
    found: dict[str, Any] = {"refused": {}}
    hal, pool, ids = scene(registry, backend)
    writer, full = hal.kv(pool["swa"]), pool["full"].kernel_ids(ids)
    given = {"full": full, "bare": full.tensor, "virtual": ids, "physical": pool["swa"].physical_ids(ids)}
    for name, wrong in given.items():
        try:
            writer.write(1, wrong, ROW, ROW)
        except WrongIdSpace as error:
            found["refused"][name] = str(error)
    try:
        hal.kv(pool["swa"], ids=pool["full"].space("kernel"))
    except WrongIdSpace as error:
        found["not bound"] = str(error)
    found["with the guard"] = written(pool)
    hal.kv(pool["swa"], ids=pool["swa"].space("virtual")).write(1, ids, ROW, ROW)
    found["translated"] = written(pool)
    found["described"] = str(hal.describe(pool, {"swa": pool["swa"].space("virtual")}))
    hal, pool, ids = scene(registry, backend)
    with unguarded():
        hal.kv(pool["swa"]).write(1, pool["full"].kernel_ids(ids), ROW, ROW)
        found["without the guard"] = written(pool)
        results = [run_check(CHECKS[name], Target(backend), profile_name="dev", shrink=False) for name in KIT]
    found["kit"] = {result.check: [result.status, result.by] for result in results}
    return found


def main() -> None:
    registry = Registry.discover([*installed()[0], point("token-major", TokenMajor())], os.environ)
    ready = [name for name in registry.backends if registry.probe(name, "cpu").state == "ready"]
    print(json.dumps({name: outcome(registry, name) for name in ready}))


if __name__ == "__main__":
    main()
