"""What ``statehal plan`` and ``certify`` are asked about: specs in JSON, sizes, and models that are known here."""

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from statehal._suggest import did_you_mean
from statehal.errors import SpecError
from statehal.portability import Topology, shard
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec

KINDS = {"Attention": Attention, "ConvRecurrent": ConvRecurrent, "Latent": Latent}
"""Values of ``kind`` in a file of specs."""

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Bytes of a size such as ``8GiB``, ``1.5 MB`` or ``4096``; rounded down.

    >>> parse_size("8GiB"), parse_size("1.5 kb")
    (8589934592, 1500)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: expected bytes, or a number with KiB, MiB, GiB or TiB")
    whole, _, part = match[1].partition(".")
    return int(whole + part) * _UNITS[match[2].lower()] // int("1" + "0" * len(part))


def parse_budget(text: str) -> tuple[str, int]:
    """Name and bytes of ``NAME=SIZE``."""
    name, equals, number = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no budget: expected NAME=SIZE, such as full=4GiB")
    return name, parse_size(number)


def add_specs(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say which model is meant."""
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument(
        "specs", nargs="?", metavar="SPECS.json", help='a list of specs: [{"kind": "Attention", ...}, ..]'
    )
    model.add_argument("--example", choices=EXAMPLES, help="a model that is known here")


def chosen_specs(args: argparse.Namespace) -> tuple[str, tuple[Spec, ...]]:
    """The model that was chosen: its title and its specs."""
    return (args.example, EXAMPLES[args.example]) if args.example else (args.specs, read_specs(args.specs))


def read_specs(path: str) -> tuple[Spec, ...]:
    """The specs of a JSON file.

    Raises:
        SpecError: the file cannot be read, or an entry is wrong; names the entry and the key.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror} (fix: name a JSON file of specs, or use --example)") from None
    except ValueError as error:  # not JSON, or not text
        raise SpecError(f"{path}: no JSON: {error}") from None
    if not isinstance(entries, list):
        raise SpecError(f"{path}: holds {_told(entries)}: expected a list of specs")
    return tuple(_spec(f"{path}: entry {index}", entry) for index, entry in enumerate(entries))


def _spec(where: str, entry: object) -> Spec:
    if not isinstance(entry, dict):
        raise SpecError(f"{where} is {_told(entry)}: expected an object with the keys of a spec")
    if "name" in entry:
        where = f"{where} ({entry['name']!r})"
    kind = entry.get("kind")
    if kind not in KINDS:
        raise SpecError(f"{where} has kind={kind!r}: expected one of {', '.join(KINDS)}{_hint(str(kind), KINDS)}")
    values = {key: value for key, value in entry.items() if key != "kind"}
    try:
        spec = _build(where, KINDS[kind], values)
    except SpecError as error:
        raise SpecError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
    assert isinstance(spec, Spec)
    return spec


def _build(where: str, cls: type, values: Mapping[str, object]) -> object:
    """An object of a dataclass from JSON values, each checked against the annotation of its key."""
    hints = get_type_hints(cls)
    for key in values:
        if key not in hints:
            raise SpecError(f"{where} has an unknown key {key!r}: expected {', '.join(hints)}{_hint(key, hints)}")
    for field in fields(cls):
        if field.name not in values and field.default is MISSING:
            raise SpecError(f"{where} lacks the key {field.name!r}")
    return cls(**{key: _convert(where, key, value, hints[key]) for key, value in values.items()})


def _convert(where: str, key: str, value: object, hint: Any) -> object:
    """A JSON value as what the annotation says: lists become tuples, objects extra fields."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is UnionType or (origin is not None and NoneType in args):
        if value is None and NoneType in args:
            return None
        return _convert(where, key, value, next(arg for arg in args if arg is not NoneType))
    if origin is tuple and isinstance(value, list) and (args[-1] is Ellipsis or len(value) == len(args)):
        return tuple(_convert(where, key, one, args[0]) for one in value)
    if hint is ExtraField and isinstance(value, dict):
        return _build(f"{where}: an extra row", ExtraField, value)
    if origin is Literal:
        if value in args:
            return value
    elif isinstance(hint, type) and isinstance(value, hint) and not isinstance(value, bool):
        return value
    raise SpecError(f"{where} has {key}: {_told(value)}: expected {_expected(hint)}")


def _expected(hint: Any) -> str:
    """An annotation in the words of JSON."""
    args = get_args(hint)
    if get_origin(hint) is tuple:
        inner = "lists of two integers" if get_origin(args[0]) is tuple else "objects"
        many = "integers" if args[0] is int else inner
        return f"a list of {many}" if args[-1] is Ellipsis else "a list of two integers"
    if get_origin(hint) is Literal:
        return " or ".join(json.dumps(arg) for arg in args)
    return {int: "an integer", str: "a string"}.get(hint, "an object")


def _hint(name: str, known: Iterable[str]) -> str:
    question = did_you_mean(name, known)
    return f" ({question})" if question else ""


def _told(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


def _periodic(layers: int, period: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers that end a period, such as full attention after each five of a sliding window, and the others."""
    last = tuple(layer for layer in range(layers) if (layer + 1) % period == 0)
    return last, tuple(layer for layer in range(layers) if layer not in last)


def _attention(full: tuple[int, ...], sliding: tuple[int, ...], heads: int, dim: int, window: int) -> tuple[Spec, ...]:
    return (
        Attention("full", full, heads, dim, "bfloat16"),
        Attention("swa", sliding, heads, dim, "bfloat16", window=window),
    )


def _qwen() -> tuple[Spec, ...]:
    full, conv = _periodic(48, 4)
    sections, heads = (2048, 2048, 4096), (16, 16, 32)
    return (
        Attention("full", full, 2, 256, "bfloat16"),
        ConvRecurrent("gdn", conv, 8192, 4, "bfloat16", sections=sections, section_heads=heads, state=(32, 128, 128)),
    )


def _kimi() -> tuple[Spec, ...]:
    latent, conv = (3, 7, 11, 15, 19, 23, 26), tuple(layer for layer in range(26) if layer % 4 != 3)
    sections, heads = (4096, 4096, 4096), (32, 32, 32)
    return (
        Latent("mla", latent, 512, 64, "bfloat16"),
        ConvRecurrent("kda", conv, 12288, 4, "bfloat16", sections=sections, section_heads=heads, state=(32, 128, 128)),
    )


def _mamba() -> tuple[Spec, ...]:
    sections, heads = (5120, 128, 128), (80, 1, 1)
    layers = tuple(range(64))
    return (
        ConvRecurrent("ssm", layers, 5376, 4, "bfloat16", sections=sections, section_heads=heads, state=(80, 64, 128)),
    )


EXAMPLES: Mapping[str, tuple[Spec, ...]] = MappingProxyType(
    {
        "smollm2-135m": (Attention("full", tuple(range(30)), 3, 64, "bfloat16"),),
        "gpt-oss-20b": _attention(*_periodic(24, 2), 8, 64, 128),
        "gemma-3-27b": _attention(*_periodic(62, 6), 16, 128, 1024),
        "deepseek-v3": (Latent("mla", tuple(range(61)), 512, 64, "bfloat16"),),
        "qwen3-next-80b": _qwen(),
        "qwen3-next-80b-tp4": shard(_qwen(), Topology(tensor=4), 0),
        "kimi-linear-48b": _kimi(),
        "kimi-linear-48b-tp4": shard(_kimi(), Topology(tensor=4), 0),
        "mamba2-2.7b": _mamba(),
    }
)
"""Specs of some published models; ``-tp4``: as one of four tensor-parallel ranks keeps them."""
