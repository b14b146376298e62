"""The tokens that one sequence of a cache has read."""

from array import array
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from statehal.portability.offload import Prefix


class History:
    """Tokens that a sequence has read, with their names in a store.

    Tokens of a pass are known before it runs, and may be drafts: ``prefix`` has them once they are there to stay.

    Args:
        new: makes the ``Prefix`` of tokens.

    Attributes:
        prefix: of what has been settled.
        stored: tokens, in whole blocks, that were given to the store or came from it.
    """

    def __init__(self, new: "Callable[[Iterable[int]], Prefix]") -> None:
        self.prefix = new(())
        self.stored = 0
        self._new = new
        self._tokens = array("q")

    def begin(self, length: int, tokens: Iterable[int]) -> None:
        """Tokens that come after the first ``length``; what was known behind those is forgotten."""
        del self._tokens[length:]
        self._tokens.extend(tokens)

    def came(self, tokens: Iterable[int]) -> None:
        """Whole blocks that came from the store."""
        self.begin(0, tokens)
        self.stored = len(self._tokens)

    def settle(self, length: int) -> None:
        """The first ``length`` tokens are there to stay, and no others."""
        del self._tokens[length:]
        if len(self.prefix) > length:
            self.prefix = self._new(self._tokens)
        else:
            self.prefix.extend(self._tokens[len(self.prefix) :])
        self.stored = min(self.stored, length - length % self.prefix.object_tokens)

    def starts_with(self, tokens: Iterable[int]) -> bool:
        """Whether the first tokens are these."""
        given = array("q", tokens)
        return self._tokens[: len(given)] == given

    def copy(self) -> Self:
        """A second one, which goes on apart from this one."""
        other = type(self)(self._new)
        other.prefix, other.stored = deepcopy(self.prefix), self.stored
        other._tokens = self._tokens[:]
        return other
