"""Each file fits its schema, and the schema refuses files that are not like it."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus.json_schema import wrong
from statehal.testing import corpus
from statehal.testing.corpus import NAMES, load

Json = dict[str, Any]


def schema(name: str) -> Json:
    text = Path(corpus.__file__).with_name(f"{name}.schema.json").read_text(encoding="utf-8")
    found: Json = json.loads(text)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_file_fits_its_schema(name: str) -> None:
    loaded = load(name)
    assert loaded["$schema"] == f"{name}.schema.json"
    assert loaded["version"] == 1
    assert wrong(loaded, schema(name), schema(name)) is None


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_a_schema_is_used(name: str) -> None:
    found = schema(name)
    refs = json.dumps(found).count
    assert [one for one in found["$defs"] if not refs(f'"#/$defs/{one}"')] == []


def lose(key: str) -> Callable[[Json], Any]:
    return lambda vector: vector.pop(key)


CHANGES: dict[str, tuple[str, Callable[[Json], Any]]] = {
    "a lost key of a layout": ("layout-vectors", lose("page_bytes")),
    "a stray key of a layout": ("layout-vectors", lambda vector: vector.update(stray=1)),
    "a fraction": ("layout-vectors", lambda vector: vector.update(page_bytes=1.5)),
    "an unknown dtype": ("layout-vectors", lambda vector: vector["fields"][0].update(dtype="float9")),
    "an unknown kind of spec": ("layout-vectors", lambda vector: vector["spec"].update(kind="ring")),
    "a form that is neither": ("layout-vectors", lambda vector: vector["fields"][0]["forms"]["row"].update(absent="?")),
    "a negative byte": ("layout-vectors", lambda vector: vector["fields"][0]["addresses"][0].update(byte=-1)),
    "no address": ("layout-vectors", lambda vector: vector["fields"][0].update(addresses=[])),
    "a lost key of a convolution": ("conv-vectors", lose("after_step")),
    "a width of 9": ("conv-vectors", lambda vector: vector.update(width=9)),
    "an unknown protocol": ("conv-vectors", lambda vector: vector.update(protocol="lifo")),
    "text in a window": ("conv-vectors", lambda vector: vector["before"][0]["window"][0].append("1")),
    "a truth value for a number": ("conv-vectors", lambda vector: vector["y"][0].append(True)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_schema_refuses(change: str) -> None:
    name, damage = CHANGES[change]
    found = schema(name)
    one: Json = copy.deepcopy(load(name)["vectors"][0])
    assert wrong(one, found["$defs"]["vector"], found) is None
    damage(one)
    assert wrong(one, found["$defs"]["vector"], found) is not None
