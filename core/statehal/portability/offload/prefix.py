"""The tokens of one request, as the keys of their blocks."""

from array import array
from collections.abc import Iterable

from statehal.errors import ArgumentError
from statehal.portability.store.keys import ROOT, block_keys, token_array


class Prefix:
    """What one request's state has read, or is to read: hashed block by block as it comes, so never twice.

    Blocks are cut on the request's own grid: block ``i`` is its tokens ``[i*n, (i+1)*n)``, whatever batch they were
    read in.

    Args:
        tokens: the first ones.
        object_tokens: ``n``, tokens of a block.
        adapter: what changes the model for this request, such as a LoRA's name and revision.
        salt: what else the state depends on and tokens do not say: the digest of an image, a tenant's secret.

    Attributes:
        object_tokens: as given.
        keys: of every whole block.

    Raises:
        ArgumentError: ``object_tokens`` is below 1, or a token is no integer of 64 bits.

    Examples:
        >>> prefix = Prefix([1, 2, 3, 4, 5], object_tokens=2)
        >>> len(prefix), [key[:8] for key in prefix.keys]
        (5, ['f08f9220', '7a2183bd'])
    """

    def __init__(self, tokens: Iterable[int] = (), *, object_tokens: int, adapter: str = "", salt: bytes = b"") -> None:
        if object_tokens < 1:
            raise ArgumentError(f"object_tokens={object_tokens} of a prefix: expected at least 1")
        self.object_tokens = object_tokens
        self.keys: list[str] = []
        self._adapter, self._salt = adapter, salt
        self._tail = array("q")
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self.keys) * self.object_tokens + len(self._tail)

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens that are there to stay: drafts only once they are accepted.

        Raises:
            ArgumentError: a token is no integer of 64 bits; none was added.
        """
        try:
            tail = self._tail + token_array(tokens)
        except (TypeError, OverflowError) as error:
            raise ArgumentError(f"tokens of a prefix are not integers of 64 bits: {error}") from None
        parent = self.keys[-1] if self.keys else ROOT
        self.keys += block_keys(tail, self.object_tokens, parent=parent, adapter=self._adapter, salt=self._salt)
        self._tail = tail[len(tail) - len(tail) % self.object_tokens :]

    def __repr__(self) -> str:
        return f"Prefix({len(self)} tokens, {len(self.keys)} blocks of {self.object_tokens})"
