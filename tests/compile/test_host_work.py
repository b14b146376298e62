"""Work of the host beside graphs: pending copies are done before an operator runs, the rest stays outside."""

from typing import Any

import pytest
import torch

from compile.programs import State, run, same_bytes, values
from statehal.errors import ArgumentError
from statehal.pool import Pages


def shared(s: State) -> Pages:
    """Rows in a page with two holders, and a copy of it that is pending."""
    rows = values(8, 2, 4)
    s.kv.write(0, s.ids["kv"], rows, -rows)
    other = s.pool.retain(s.pages)
    s.pool.fork(other, 0)
    assert s.pool.copies_pending
    return other


def overwrite(s: State) -> None:
    s.kv.write(0, s.ids["kv"], values(8, 2, 4, seed=5), values(8, 2, 4, seed=6))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when it loads inductor
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_pending_copy_comes_before_a_write_to_its_source(backend: str) -> None:
    plain, compiled = State(compile_safe=False), State()
    others = shared(plain), shared(compiled)
    overwrite(plain)
    run(overwrite, compiled, backend=backend)
    assert not compiled.pool.copies_pending
    assert same_bytes(plain, compiled)
    ids = compiled.pool["kv"].kernel_ids(others[1].token_ids())
    assert torch.equal(compiled.pool["kv"].view("k", 0)[ids.tensor[:4]], values(8, 2, 4)[:4])


def test_a_pending_copy_survives_a_graph_that_fails() -> None:
    """The graph worked on a copy of the buffer, which is dropped; what the pool owed the device must not be."""
    state = State()
    other = shared(state)

    def program(s: State) -> None:
        overwrite(s)
        s.kv.write(7, s.ids["kv"], values(8, 2, 4), values(8, 2, 4))

    with pytest.raises(ArgumentError, match="no layer 7 here"):
        run(program, state)
    ids = state.pool["kv"].kernel_ids(other.token_ids())
    assert torch.equal(state.pool["kv"].view("k", 0)[ids.tensor], values(8, 2, 4))


def test_the_same_graph_runs_with_and_without_pending_copies() -> None:
    plain, compiled = State(compile_safe=False), State()
    program: Any = torch.compile(overwrite, backend="aot_eager", fullgraph=True)
    for state, write in ((plain, overwrite), (compiled, program)):
        write(state)
        shared(state)
        write(state)
        write(state)
    assert same_bytes(plain, compiled)


def test_work_of_the_pool_does_not_become_part_of_a_graph() -> None:
    def flush(s: State) -> None:
        s.pool.flush()
        overwrite(s)

    plain, state = State(compile_safe=False), State()
    shared(plain), shared(state)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="pending work of a pool cannot be part of a graph"):
        run(flush, state)
    assert state.pool.copies_pending
    flush(plain)
    torch._dynamo.reset()
    torch.compile(flush, backend="aot_eager")(state)  # in two graphs
    assert not state.pool.copies_pending
    assert same_bytes(plain, state)


def test_ids_may_be_translated_in_a_graph_where_no_work_is_pending() -> None:
    def program(s: State, pages: Pages, virtual: Any) -> None:
        s.kv.write(0, s.pool["kv"].kernel_ids(virtual), values(8, 2, 4), values(8, 2, 4, seed=1))

    plain, state = State(compile_safe=False), State()
    program(plain, plain.pages, plain.pages.token_ids())
    run(program, state, state.pages, state.pages.token_ids())
    assert same_bytes(plain, state)
    more = state.pool.alloc(8, ["kv", "half", "mla"])
    with pytest.raises(torch._dynamo.exc.Unsupported, match="pending work of a pool cannot be part of a graph"):
        run(program, state, more, more.token_ids())


def test_views_are_not_read_inside_a_graph() -> None:
    """Inductor may read them after a later operator has written there."""

    def program(s: State) -> torch.Tensor:
        overwrite(s)
        return s.pool["kv"].view("k", 0)[s.ids["kv"].tensor] * 2

    plain, state = State(compile_safe=False), State()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"view\(\) cannot be part of a graph: reads through it"):
        run(program, state)
    torch._dynamo.reset()
    got = torch.compile(program, backend="aot_eager")(state)
    assert torch.equal(got, program(plain))
    view = state.pool["kv"].view("k", 0)

    def outside(s: State) -> torch.Tensor:
        overwrite(s)
        return view[s.ids["kv"].tensor]

    with pytest.raises(Exception, match="input mutations on views with different dtypes"):  # torch refuses it
        run(outside, state)
