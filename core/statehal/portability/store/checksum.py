"""The checksum of parts, from a library that is an extra of this distribution."""

from typing import Protocol

from statehal.errors import MissingDependency

NAME = "xxh3_64"
DIGITS = 16
NONE = "none"
"""What a part says that carries no checksum."""


class Hash(Protocol):
    """A running checksum."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Take in more bytes."""
        ...

    def hexdigest(self) -> str:
        """The checksum of the bytes so far, ``DIGITS`` hexadecimal digits."""
        ...


def new_hash() -> Hash:
    """A running XXH3 of 64 bits, seed 0.

    Raises:
        MissingDependency: xxhash is not installed.
    """
    try:
        import xxhash  # asked for once a part, and a third of the time of "from"
    except ModuleNotFoundError:
        raise MissingDependency(
            "the checksums of stored parts need xxhash, which is not installed (fix: pip install 'statehal[store]')"
        ) from None
    made: Hash = xxhash.xxh3_64()
    return made
