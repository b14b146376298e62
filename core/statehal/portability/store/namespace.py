"""Namespaces: everything that has to be equal before one process may read another's bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from statehal.errors import ArgumentError
from statehal.portability.grouping import Grouping
from statehal.portability.store.encoding import canonical, digest, dump
from statehal.portability.topology import Topology
from statehal.spec import Attention, ConvRecurrent, Latent, Spec, dtype_name

STORE_FORMAT = 1
"""Version of the namespace's document, of a part's file and of a store's directory."""

NOT_IN_BYTES = {
    Attention: frozenset({"name", "ids"}),
    Latent: frozenset({"name", "ids"}),
    # a state point is the live rows, whatever the window holds beside them
    ConvRecurrent: frozenset({"name", "ids", "shared", "verify_tokens"}),
}
"""Attributes of specs that change no stored byte and no meaning of one."""


@dataclass(frozen=True)
class Namespace:
    """What the parts of one sub-pool mean: equal digests promise equal meanings of equal bytes.

    Attributes:
        encoded: the canonical encoding of the document; ``Namespace.of`` makes it.
    """

    encoded: bytes

    @classmethod
    def of(
        cls,
        spec: Spec,
        *,
        model: str,
        revision: str,
        grouping: Grouping,
        static_scales: Mapping[str, Any] | None = None,
        rope: Mapping[str, Any] | None = None,
        hash_seed: str = "",
        exact: tuple[Topology, int] | None = None,
    ) -> "Namespace":
        """The namespace of a sub-pool.

        Args:
            spec: the whole model's, not a rank's: all layers, all heads, the exact storage dtype. Of a sub-pool that is
                not certified, the rank's own.
            model: the model's id.
            revision: the exact weights: a commit, not a branch.
            grouping: the sizes of blocks and parts, made from the specs of the whole model.
            static_scales: scales that stored values were divided by and that no field holds, by field.
            rope: the rotary configuration that keys were rotated with before they were stored.
            hash_seed: what else was mixed into keys before they came here.
            exact: of a sub-pool that is not certified, the topology and the rank whose bytes alone these are.

        Raises:
            ArgumentError: a value cannot be encoded, the spec is of an unknown class, or not of the grouping.
        """
        sizes = grouping.of_subpool(spec.name)
        if exact is not None:
            exact[0].place(exact[1])  # refuses a rank that there is none of
        document = {
            "format": STORE_FORMAT,
            "model": model,
            "revision": revision,
            "spec": spec_document(spec),
            "object_tokens": grouping.object_tokens,
            "layers_of_a_part": sizes.layers,
            "head_groups": sizes.head_groups,
            "static_scales": static_scales or {},
            "rope": rope or {},
            "hash_seed": hash_seed,
            "topology": None if exact is None else vars(exact[0]) | {"rank": exact[1]},
        }
        return cls(canonical(document))

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """What the digest is of."""
        document: dict[str, Any] = json.loads(self.encoded)
        return document

    def is_readable(self) -> bool:
        """Whether the document is one, which a digest that is right does not say."""
        try:
            match self.document:
                case {"model": str(), "spec": {"kind": str(), "layers": list(), "dtype": str()}}:
                    return True
        except (ValueError, RecursionError):
            pass
        return False

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the encoding, 64 hexadecimal digits: the namespace's name in every store."""
        return digest(self.encoded)

    @cached_property
    def spec_fingerprint(self) -> str:
        """SHA-256 of the encoding of ``document["spec"]``, 64 hexadecimal digits."""
        return digest(dump(self.document["spec"]))


def spec_document(spec: Spec) -> dict[str, Any]:
    """What of a spec decides the bytes and their meaning.

    Raises:
        ArgumentError: a class of specs that is not known here; to leave out what it adds would not be safe.
    """
    kind = type(spec)
    if kind not in NOT_IN_BYTES:
        known = ", ".join(one.__name__ for one in NOT_IN_BYTES)
        raise ArgumentError(f"spec {spec.name!r} is a {kind.__name__}: expected one of {known}")
    document = {name: value for name, value in vars(spec).items() if name not in NOT_IN_BYTES[kind]}
    document["kind"] = kind.__name__
    document["extra"] = [
        vars(one) | {"dtype": dtype_name(one.dtype), "layers": spec.layers if one.layers is None else one.layers}
        for one in spec.extra
    ]
    if isinstance(spec, Attention) and spec.v_head_dim is None:
        document["v_head_dim"] = spec.head_dim
    if "shared" in document:
        document["shared"] = sorted(spec.shared)
    return document
