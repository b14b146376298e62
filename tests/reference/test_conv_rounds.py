"""Verify and commit leave, bit for bit, what sequential decode of the accepted tokens leaves: 504 runs of 20 rounds."""

from collections import Counter
from typing import Literal

import pytest
import torch

from reference.conv_rounds import Run

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROUNDS = 20


@pytest.mark.parametrize("protocol", ["ring", "offset", "rollback"])
@pytest.mark.parametrize("width", range(2, 9))
def test_random_rounds(width: int, protocol: Literal["ring", "offset", "rollback"]) -> None:
    """Every dtype and every number of drafts, in a pool of its own each."""
    seen: Counter[str] = Counter()
    for drafts in range(1, 9):
        for n, dtype in enumerate(DTYPES):
            seed = 1000 * width + 100 * drafts + 10 * n + len(protocol)
            run = Run(seed, width, drafts, protocol, dtype, check=(drafts + n) % 5 == 0)
            for _ in range(ROUNDS):
                run.round()
            run.decode_twice()
            run.made.pool.check()
            seen += run.seen
    due = {f"{kind}{padding}" for kind in ("prefill", "decode", "verify") for padding in ("", " of padding")}
    due |= {f"accepted {a} of {drafts}" for drafts in range(1, 5) for a in range(1, drafts + 1)}
    due |= {f"accepted {a} of {drafts}" for drafts in range(5, 9) for a in (1, 2, drafts)}
    due |= {f"ragged {ragged}, trees {trees}" for ragged in (False, True) for trees in (False, True)}
    due |= {"tracked", "tracked less than accepted", "not tracked", "snapshots", "prefix", "rejected in a tree"}
    due |= {"check True", "check False", "state None", "state (2, 2)", "exact True", "exact False"}
    assert due - set(seen) == set()
