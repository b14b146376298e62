"""Right layouts of other kinds than the reference's pass the checks, which hold no backend to one of them."""

from typing import Any

import pytest

from conformance.mutant import MutantBackend, target
from statehal.layout import ConvStateLayout, layer_major, nz, page_major, token_major
from statehal.spec import itemsize
from statehal.testing import CHECKS
from statehal.testing.runner import run_check

TOPICS = ("pool_layout", "conv_layout", "graph_safety")


def _nz(made: Any, request: Any) -> Any:
    """Where rows are whole fractals of 32 bytes; else the reference's."""
    whole = all(one.row_shape[-1] * itemsize(one.dtype) % 32 == 0 for one in request.spec.fields())
    return nz(request.spec, request.page_size, forms=("page",)) if whole else made


def _window(*facts: Any) -> Any:
    """A window of that kind; a replay ring keeps the reference's."""

    def change(made: Any, request: Any) -> Any:
        return made if any(extra.name == "replay" for extra in request.spec.extra) else ConvStateLayout(*facts)

    return change


BACKENDS = {
    "layer-major": {"pool_layout": lambda made, request: layer_major(request.spec, request.page_size)},
    "layer-major, heads first, blocks": {
        "pool_layout": lambda made, request: layer_major(
            request.spec, request.page_size, order="HND", forms=("block", "page")
        )
    },
    "token-major": {"pool_layout": lambda made, request: token_major(request.spec, request.page_size, align=16)},
    "page-major, heads first, two forms": {
        "pool_layout": lambda made, request: page_major(
            request.spec, request.page_size, order="HND", forms=("block", "row"), align=64
        )
    },
    "fractals": {"pool_layout": _nz},
    "channels first, offset": {"conv_layout": _window("channels_first", 4, "offset", ("row", "page"), 16)},
    "rows first, rollback": {"conv_layout": _window("rows_first", 3, "rollback", ("page", "block"), 64)},
}


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("name", BACKENDS)
def test_it_passes(name: str, topic: str) -> None:
    backend: dict[str, Any] = BACKENDS[name]
    made = target(MutantBackend(**backend))
    for check in CHECKS.values():
        if check.topic == topic:
            result = run_check(check, made, profile_name="dev", shrink=False)
            assert result.status == "passed", result.message
