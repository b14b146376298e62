"""One byte string for one document: what namespaces are digests of, in any language.

JSON in ASCII, without blanks, keys sorted; ``docs/store.md`` has the rules and test vectors.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

from statehal.errors import ArgumentError

FLOAT_KEY = "$f64"


def canonical(document: object) -> bytes:
    """The encoding of a document of ``None``, bool, int, float, str, sequences and mappings with ASCII keys.

    A float is written as the bits of an IEEE 754 binary64: ``{"$f64":"3ff8000000000000"}`` is 1.5, whatever a language
    prints for it. So ``10000`` and ``10000.0`` are different documents.

    Raises:
        ArgumentError: a value of another type, a NaN, a key that is not ASCII, a lone surrogate.

    Examples:
        >>> canonical({"b": (1, True, None), "a": 1.5})
        b'{"a":{"$f64":"3ff8000000000000"},"b":[1,true,null]}'
    """
    return dump(_plain(document, "document"))


def dump(plain: object) -> bytes:
    """The encoding of what JSON holds already, such as a piece of a document that was read back."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest(encoded: bytes) -> str:
    """SHA-256, as 64 hexadecimal digits."""
    return hashlib.sha256(encoded).hexdigest()


def _plain(value: object, where: str) -> Any:
    match value:
        case None | bool() | int():
            return value if value is None or isinstance(value, bool) else int(value)
        case float():
            if value != value:
                raise ArgumentError(f"{where} is a NaN, which equals nothing (fix: leave it out, or say it in words)")
            return {FLOAT_KEY: struct.pack(">d", value).hex()}
        case str():
            if any(0xD800 <= ord(char) < 0xE000 for char in value):
                raise ArgumentError(f"{where} is {value!a}: expected text without lone surrogates")
            return str(value)
        case list() | tuple():
            return [_plain(one, f"{where}[{index}]") for index, one in enumerate(value)]
        case Mapping():
            for key in value:
                if not isinstance(key, str) or not key.isascii() or key == FLOAT_KEY:
                    raise ArgumentError(f"{where} has the key {key!r}: expected ASCII text other than {FLOAT_KEY!r}")
            return {key: _plain(one, f"{where}.{key}") for key, one in value.items()}
        case _:
            raise ArgumentError(
                f"{where} is a {type(value).__name__}: expected None, bool, int, float, str, a list or a mapping"
            )
