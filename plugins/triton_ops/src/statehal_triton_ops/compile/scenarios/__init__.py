"""What launches every kernel: one module a topic."""

from collections.abc import Iterator

from statehal_triton_ops.compile.scenario import Scenario
from statehal_triton_ops.compile.scenarios import conv, kv, memory


def scenarios() -> Iterator[Scenario]:
    """All of them, in a fixed order."""
    yield from kv.scenarios()
    yield from conv.scenarios()
    yield from memory.scenarios()
