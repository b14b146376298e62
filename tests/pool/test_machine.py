"""The pool against its model under random operations, on pools of every shape."""

import ast
import inspect
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from pool import model, places
from pool.machine import machine_for
from pool.misuse import MISUSES
from pool.shapes import SHAPES, Shape

EXAMPLES, STEPS = 336, 50
MORE = 8
"""How often further examples are drawn until everything has happened."""
LEAST_STEPS = 100_000 // len(SHAPES)
THOROUGH_STEPS = 1_000_000 // len(SHAPES)
ALWAYS = {
    "alloc",
    "drain_work and run",
    "eviction",
    "eviction of a shared page",
    "exhausted",
    "extend",
    "flush",
    "fork of a shared page",
    "free by number",
    "free of a handle",
    "free of a slice",
    "free of several handles",
    "leftovers in a page that is not cleaned",
    "only a pin held a page",
    "pin",
    "read",
    "retain",
    "translate",
    "truncate",
    "unpin",
    "work is interrupted",
    "write",
}
WITH_SLABS = {
    "compaction",
    "compaction beside a pin",
    "compaction frees a slab",
    "reuse after compaction",
    "slab changes owner",
    "stale ids",
}
REFUSED = {
    f"refused: {kind}"
    for kind in (
        "ArgumentError",
        "DoubleFree",
        "ForeignPages",
        "PageOutOfRange",
        "SinkPage",
        "StepsInFlight",
        "UseAfterFree",
        "WrongIdSpace",
    )
}


def run(shape: Shape, examples: int, *, derandomize: bool) -> Counter[str]:
    """Counts of everything that happened; runs are of ``STEPS`` steps, some of them cut short by Hypothesis."""
    seen: Counter[str] = Counter()
    run_state_machine_as_test(
        machine_for(shape, seen),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=derandomize,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
    return seen


def expected(shape: Shape) -> set[str]:
    """What must have happened on a pool of that shape."""
    families = {spec.name if spec.ids == "direct" else spec.kind for spec in shape.specs}
    result = ALWAYS | REFUSED | {f"misuse: {kind}" for kind in MISUSES}
    if len(shape.specs) > 1:
        result |= WITH_SLABS
    if shape.page_size > 1:
        result |= {"copy on write"}
    if sum(spec.kind == "tokens" and spec.ids == "virtual" for spec in shape.specs) > 1:
        result |= {"joint allocation"}
    if len(families) == 1:
        result -= {"misuse: handle of another family", "misuse: joint allocation across families"}
    return result


def test_the_model_imports_nothing_of_what_it_models() -> None:
    for module in (model, places):
        imports = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
        assert {node.module for node in imports} <= {"collections", "collections.abc", "dataclasses", "pool.places"}
        assert not [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Import)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pool_agrees_with_its_model(shape: Shape) -> None:
    seen = run(shape, EXAMPLES, derandomize=True)
    assert seen["steps"] >= LEAST_STEPS
    for _ in range(MORE):
        # what Hypothesis draws depends on the modules that are loaded, so that a rare event may want other examples
        if expected(shape) <= set(+seen):
            break
        seen += run(shape, EXAMPLES, derandomize=False)
    assert not expected(shape) - set(+seen), "these never happened, so nothing was learned about them"


@pytest.mark.thorough
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pool_agrees_with_its_model_over_a_million_steps(shape: Shape) -> None:
    seen: Counter[str] = Counter()
    while seen["steps"] < THOROUGH_STEPS:
        seen += run(shape, 1_000, derandomize=False)
    assert not expected(shape) - set(+seen)
