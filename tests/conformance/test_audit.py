"""No method of the contract, and no optional argument of one, is left out by every check."""

from typing import Any

import pytest
import torch

from statehal.spec import Attention
from statehal.testing import CHECKS, Check, Target, run_check
from statehal.testing.audit import EXEMPT, everything, parts, unreached


def test_every_method_and_optional_argument_is_reached() -> None:
    missing = unreached(CHECKS.values())
    assert missing == [], "no check calls or passes these (fix: write one)"


def test_what_has_to_be_reached_comes_from_the_protocols() -> None:
    methods = everything()
    assert {"kv.write", "kv.move", "conv.commit", "conv.read_state", "memory.translate"} <= set(methods)
    assert list(parts("kv.write", methods["kv.write"])) == ["kv.write", "kv.write(k_scale=)", "kv.write(v_scale=)"]


def test_what_is_exempt_is_in_the_contract() -> None:
    assert set(EXEMPT) <= {part for name, signature in everything().items() for part in parts(name, signature)}


def written(target: Target, **options: Any) -> None:
    """A write of two rows into fp8 storage."""
    pool = target.pool([Attention("full", (0,), 1, 8, "float8_e4m3fn")], tokens=16)
    rows = target.on_device(torch.zeros(2, 1, 8))
    ids = pool["full"].kernel_ids(pool.alloc(2).token_ids())
    target.binding().kv(pool["full"]).write(0, ids, rows, rows, **options)


@pytest.mark.parametrize(
    ("options", "reached"),
    [({}, set()), ({"k_scale": None}, set()), ({"k_scale": 2.0}, {"kv.write(k_scale=)"})],
    ids=["none", "the default", "a scale"],
)
def test_an_argument_counts_where_it_is_not_the_default(options: dict[str, Any], reached: set[str]) -> None:
    check = Check("a/b", "A sentence.", lambda target: written(target, **options))
    missing = set(unreached([check]))
    assert run_check(check, Target("reference")).status == "passed"
    every = {part for name, signature in everything().items() for part in parts(name, signature)}
    assert {part for part in every - missing if part.startswith("kv.")} == {"kv.write", *reached}
