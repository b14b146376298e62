"""Namespaces and keys: their encodings are literal here, and equal in every process."""

import dataclasses
import hashlib
import json
import os
import struct
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statehal.errors import ArgumentError
from statehal.portability import Topology
from statehal.portability.store import ROOT, Namespace, block_key, block_keys
from statehal.portability.store.encoding import canonical
from statehal.portability.store.namespace import NOT_IN_BYTES, spec_document
from statehal.spec import Attention, ExtraField, Latent, Spec
from store.named import FULL, SHORT, namespace

# By hand, from the rules of docs/store.md.
FULL_ENCODED = (
    b'{"format":1,"hash_seed":"seed","head_groups":8,"layers_of_a_part":2,"model":"acme/m\\u00fc","object_tokens":256,'
    b'"revision":"abc","rope":{"base":{"$f64":"40c3880000000000"},"dim":64},'
    b'"spec":{"dtype":"float8_e4m3fn","extra":[],"head_dim":128,"kind":"Attention","kv_heads":8,"layers":[0,2],'
    b'"scales":null,"shared":[[1,0],[3,2]],"v_head_dim":128,"window":128},'
    b'"static_scales":{"k":{"$f64":"3fe0000000000000"}},"topology":null}'
)
SHORT_SPEC = (
    b'{"channels":12,"dtype":"bfloat16","extra":[{"dtype":"int8","heads":2,"layers":[1],"name":"z","row_shape":[2,3]}],'
    b'"kind":"ConvRecurrent","layers":[1],"section_heads":[1,2],"sections":[4,8],"state":null,"state_dtype":"float32",'
    b'"width":3}'
)


def test_a_namespace_is_the_digest_of_an_encoding_that_another_language_can_make() -> None:
    found = namespace()
    assert found.encoded == FULL_ENCODED
    assert found.digest == hashlib.sha256(FULL_ENCODED).hexdigest()
    spec = FULL_ENCODED[FULL_ENCODED.index(b'{"dtype"') : FULL_ENCODED.index(b',"static_scales"')]
    assert found.spec_fingerprint == hashlib.sha256(spec).hexdigest()
    assert found == Namespace(FULL_ENCODED)


def test_the_encoding_of_a_spec_with_sections_and_further_rows() -> None:
    assert canonical(spec_document(SHORT)) == SHORT_SPEC


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_names_are_equal_in_every_process(seed: str) -> None:
    program = (
        "from store.named import namespace; from statehal.portability.store import block_keys; "
        "print(namespace().digest, block_keys([7, 8, 9], 1, adapter='a', salt=b's')[-1])"
    )
    environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [namespace().digest, block_keys([7, 8, 9], 1, adapter="a", salt=b"s")[-1]]


OTHERS: dict[str, Any] = {
    "model": namespace(model="acme/n"),
    "revision": namespace(revision="abd"),
    "rope": namespace(rope={"dim": 64, "base": 500000.0}),
    "an int is no float": namespace(rope={"dim": 64, "base": 10000}),
    "scale": namespace(static_scales={"k": 0.25}),
    "seed": namespace(hash_seed=""),
    "object_tokens": namespace(object_tokens=128),
    "layers of a part": namespace(layers=1),
    "head groups": namespace(head_groups=4),
    "topology": namespace(exact=(Topology(tensor=2), 0)),
    "rank": namespace(exact=(Topology(tensor=2), 1)),
    "stages": namespace(exact=(Topology(pipeline=2), 0)),
    "layers of stages": namespace(exact=(Topology(pipeline=2, stage_layers=(1, 3)), 0)),
    "fnuz": namespace(dataclasses.replace(FULL, dtype="float8_e4m3fnuz")),
    "window": namespace(dataclasses.replace(FULL, window=256)),
    "no window": namespace(dataclasses.replace(FULL, window=None)),
    "layers": namespace(dataclasses.replace(FULL, layers=(0, 4, 2))),
    "heads": namespace(dataclasses.replace(FULL, kv_heads=16)),
    "head_dim": namespace(dataclasses.replace(FULL, head_dim=64)),
    "v_head_dim": namespace(dataclasses.replace(FULL, v_head_dim=64)),
    "scales": namespace(dataclasses.replace(FULL, scales="per_token_head")),
    "shared": namespace(dataclasses.replace(FULL, shared=())),
    "a further row": namespace(dataclasses.replace(FULL, extra=(ExtraField("idx", (132,), "uint8"),))),
    "latent": namespace(Latent("full", (0, 2), 128, 64, "float8_e4m3fn", window=128)),
}


def test_whatever_changes_bytes_or_their_meaning_changes_the_namespace() -> None:
    """Among them: e4m3fn and e4m3fnuz never share one."""
    digests = {"the first": namespace().digest} | {name: one.digest for name, one in OTHERS.items()}
    assert len(set(digests.values())) == len(digests)


def test_a_rank_that_is_not_in_the_topology_is_refused() -> None:
    with pytest.raises(ArgumentError, match="rank=2 of a topology of 2"):
        namespace(exact=(Topology(tensor=2), 2))


def test_what_changes_no_byte_changes_no_namespace() -> None:
    """The sub-pool's name and its ids are the host's; how many drafts a window holds is none of a state point's."""
    assert namespace(dataclasses.replace(FULL, name="attn", ids="direct")) == namespace()
    assert namespace(dataclasses.replace(FULL, v_head_dim=128)) == namespace()
    assert namespace(dataclasses.replace(FULL, shared=((1, 0), (3, 2)))) == namespace()
    assert namespace(dataclasses.replace(FULL, dtype=str(torch.float8_e4m3fn))) == namespace()
    assert namespace(dataclasses.replace(SHORT, verify_tokens=1)) == namespace(SHORT)


@pytest.mark.parametrize(
    "spec", [FULL, SHORT, Latent("mla", (0,), 16, 8, "bfloat16")], ids=lambda spec: type(spec).__name__
)
def test_every_attribute_of_a_spec_is_encoded_or_known_to_change_no_byte(spec: Spec) -> None:
    attributes = {one.name for one in dataclasses.fields(spec)}
    assert attributes - NOT_IN_BYTES[type(spec)] == spec_document(spec).keys() - {"kind"}
    assert all(
        set(one) == {field.name for field in dataclasses.fields(ExtraField)} for one in spec_document(SHORT)["extra"]
    )


def test_a_class_of_specs_that_is_not_known_is_refused() -> None:
    class Novel(Attention):
        """Something that the encoding does not know."""

    with pytest.raises(ArgumentError, match="spec 'full' is a Novel: expected one of Attention, Latent, ConvRecurrent"):
        spec_document(Novel("full", (0,), 1, 8, "int8"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "document is a NaN"),
        ({"a": [1, float("nan")]}, r"document\.a\[1\] is a NaN"),
        ({1: 2}, "has the key 1"),
        ({"\u00fc": 2}, "expected ASCII text"),
        ({"$f64": "3ff0000000000000"}, r"other than '\$f64'"),
        ({"a": "\ud800"}, "without lone surrogates"),
        ({"a": {1, 2}}, r"document\.a is a set: expected None, bool"),
    ],
)  # fmt: skip
def test_what_has_no_one_encoding_is_refused(value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        canonical(value)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


def typed(value: object) -> object:
    """A value with its types, in which 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, list):
        return [typed(one) for one in value]
    if isinstance(value, dict):
        return {key: typed(one) for key, one in value.items()}
    return type(value).__name__, value.hex() if isinstance(value, float) else value


@settings(derandomize=True, max_examples=200, deadline=None)
@given(PLAIN, PLAIN)
def test_equal_encodings_mean_equal_documents(one: object, other: object) -> None:
    assert (canonical(one) == canonical(other)) == (typed(one) == typed(other))
    json.loads(canonical(one))
    assert canonical(one).isascii()


def key_by_hand(tokens: list[int], parent: str, adapter: bytes, salt: bytes) -> str:
    data = b"statehal block key 1\0" + bytes.fromhex(parent)
    for part in (adapter, salt, struct.pack(f"<{len(tokens)}q", *tokens)):
        data += struct.pack("<q", len(part)) + part
    return hashlib.sha256(data).hexdigest()


def test_the_keys_of_a_prompt() -> None:
    assert block_keys([1, 2, 3, 4, 5], 2) == [
        "f08f9220e1e9e2559e30d67b4cb049ba66a34421d1817d64f7de68efc6cbba13",
        "7a2183bdb35fe35e731edf98030b6a603856f4d6467e107dac7182af0ab4a244",
    ]


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.integers(1, 4), st.text("aü"), st.binary(max_size=3))
def test_keys_are_chained_digests(tokens: list[int], object_tokens: int, adapter: str, salt: bytes) -> None:
    expected, parent = [], ROOT
    for start in range(0, len(tokens) - object_tokens + 1, object_tokens):
        parent = key_by_hand(tokens[start : start + object_tokens], parent, adapter.encode(), salt)
        expected.append(parent)
    assert block_keys(tokens, object_tokens, adapter=adapter, salt=salt) == expected
    if len(expected) > 1:
        second = tokens[object_tokens : 2 * object_tokens]
        assert block_key(second, parent=expected[0], adapter=adapter, salt=salt) == expected[1]
        assert (
            block_keys(tokens[object_tokens:], object_tokens, parent=expected[0], adapter=adapter, salt=salt)
            == expected[1:]
        )


def test_what_a_state_depends_on_changes_the_key() -> None:
    first = block_key([1, 2])
    others = [
        block_key([1, 3]), block_key([1, 2, 3]), block_key([1, 2], parent=first), block_key([1, 2], adapter="a"),
        block_key([1, 2], salt=b"a"), block_key([1, 2], adapter="a", salt=b"a"), block_key([1, 2], adapter="aa"),
    ]  # fmt: skip
    assert len({first, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: block_key([]), "tokens are empty"),
        (
            lambda: block_key([1.5]),  # type: ignore[list-item]
            "tokens are not integers of 64 bits",
        ),
        (lambda: block_key([2**63]), "of 64 bits: int too big to convert"),
        (lambda: block_key([1], parent="0" * 63), "is no key: expected 64 lower-case hexadecimal digits"),
        (lambda: block_key([1], parent="A" * 64), "is no key"),
        (lambda: block_keys([1], 0), "object_tokens=0: expected at least 1"),
    ],
)
def test_a_bad_argument_of_a_key_is_named(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
