"""Keys of blocks: a chain of digests over what the model has read."""

import hashlib
import re
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence

from statehal.errors import ArgumentError

_DOMAIN = b"statehal block key 1\0"
_HEX = re.compile(r"[0-9a-f]{64}")
ROOT = "0" * 64
"""The parent of a prompt's first block."""


def block_key(tokens: Sequence[int], *, parent: str = ROOT, adapter: str = "", salt: bytes = b"") -> str:
    r"""The key of the block that holds these tokens after the block ``parent``: SHA-256, as 64 hexadecimal digits.

    It is a digest of the domain ``b"statehal block key 1\0"``, the 32 bytes of the parent, then adapter (UTF-8), salt
    and tokens (8 bytes each, little-endian, signed), each after its length in bytes as 8 bytes little-endian. A state
    at a token count has the key of the block that ends there.

    Args:
        tokens: the token ids of this block.
        parent: the key of the block before it.
        adapter: what changes the model for this request, such as a LoRA's name and revision.
        salt: what else the state depends on and tokens do not say: the digest of an image, a tenant's secret.

    Raises:
        ArgumentError: no tokens, a token that is no integer of 64 bits, or a parent that is no key.
    """
    return _key(_token_bytes(tokens), parent, _sized(adapter.encode()) + _sized(salt))


def block_keys(
    tokens: Sequence[int], object_tokens: int, *, parent: str = ROOT, adapter: str = "", salt: bytes = b""
) -> list[str]:
    """The keys of every whole block of a prompt, chained; the tokens after the last whole block have none.

    Args:
        tokens: the token ids of the prompt, or of the part that follows the block ``parent``.
        object_tokens: tokens of a block.
        parent: as for ``block_key``, and so are ``adapter`` and ``salt``.

    Examples:
        >>> [key[:8] for key in block_keys([1, 2, 3, 4, 5], 2)]
        ['f08f9220', '7a2183bd']
    """
    if object_tokens < 1:
        raise ArgumentError(f"object_tokens={object_tokens}: expected at least 1")
    size = 8 * object_tokens
    whole = len(tokens) // object_tokens
    packed = memoryview(_token_bytes(tokens[: whole * object_tokens])) if whole else memoryview(b"")
    bound = _sized(adapter.encode()) + _sized(salt)
    keys = []
    for index in range(whole):
        parent = _key(packed[index * size : (index + 1) * size], parent, bound)
        keys.append(parent)
    return keys


def _key(tokens: bytes | memoryview, parent: str, bound: bytes) -> str:
    made = hashlib.sha256(_DOMAIN + key_bytes(parent) + bound)
    made.update(struct.pack("<q", len(tokens)))
    made.update(tokens)
    return made.hexdigest()


def key_bytes(key: str) -> bytes:
    """The 32 bytes of a key.

    Raises:
        ArgumentError: it is not 64 lower-case hexadecimal digits.
    """
    if not _HEX.fullmatch(key):
        raise ArgumentError(f"{key!r} is no key: expected 64 lower-case hexadecimal digits (fix: use block_keys)")
    return bytes.fromhex(key)


def token_array(tokens: Iterable[int]) -> "array[int]":
    """Tokens as integers of 64 bits; bytes are tokens too, one each, and not parts of such integers."""
    return array("q", tokens if not isinstance(tokens, bytes | bytearray) else iter(tokens))


def _token_bytes(tokens: Sequence[int]) -> bytes:
    try:
        packed = token_array(tokens)
    except (TypeError, OverflowError) as error:
        raise ArgumentError(f"tokens are not integers of 64 bits: {error}") from None
    if not packed:
        raise ArgumentError("tokens are empty: a block holds at least one token")
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _sized(data: bytes) -> bytes:
    return struct.pack("<q", len(data)) + data
