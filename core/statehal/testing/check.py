"""What a check is: a plain function with the part of the contract that it holds a backend to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from statehal.testing.target import Target


class Case(Protocol):
    """Inputs that a check is run with; drawn by a strategy of the check."""

    @property
    def features(self) -> frozenset[str]:
        """What these inputs exercise, in words: ``"a padding id"``, ``"page size 3"``."""
        ...


Cases = Callable[["Target"], "SearchStrategy[Any]"]


@dataclass(frozen=True)
class Check:
    """One property of the contract.

    Attributes:
        name: ``"topic/property"`` with underscores, such as ``"kv_write/rows_lie_at_their_addresses"``.
        statement: what the contract says, one sentence; failures begin with it.
        run: called with the target and, where there are ``cases``, one case; raises ``AssertionError`` with evidence.
        cases: the strategy of the inputs for a target; ``None`` where the check needs none.
        needs: methods (``"kv.write"``) and capability tags that a backend must offer to be held to it.
        features: of the cases, those that every run in the profiles ``ci`` and ``thorough`` has to have drawn;
            ``"scale fields if scales:per_token_head"`` only where the backend claims that tag.
    """

    name: str
    statement: str
    run: Callable[..., None]
    cases: Cases | None = None
    needs: frozenset[str] = field(default_factory=frozenset)
    features: frozenset[str] = field(default_factory=frozenset)

    @property
    def topic(self) -> str:
        """The part of the name before the slash."""
        return self.name.split("/")[0]

    def due(self, target: "Target") -> frozenset[str]:
        """The features that a run over this target has to have drawn."""
        parts = [feature.partition(" if ") for feature in self.features]
        return frozenset(name for name, _, tag in parts if not tag or tag in target.offers)


REGISTERED: dict[str, Check] = {}
"""Every check, by name, in the order of registration; ``statehal.testing.checks`` fills it."""


def check(
    topic: str, *, needs: tuple[str, ...] = (), cases: Cases | None = None, features: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register ``check_PROPERTY`` as the check ``topic/PROPERTY``; the first line of its docstring is the statement."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        name = f"{topic}/{run.__name__.removeprefix('check_')}"
        assert run.__doc__, f"{name} needs a docstring"
        assert name not in REGISTERED, f"two checks are named {name}"
        statement = run.__doc__.strip().splitlines()[0]
        REGISTERED[name] = Check(name, statement, run, cases, frozenset(needs), frozenset(features))
        return run

    return register
