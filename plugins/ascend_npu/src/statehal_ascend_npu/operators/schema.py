"""Finding an operator of torch by its schema."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from statehal.errors import Unsupported


class Found(NamedTuple):
    """An operator whose schema is known.

    Attributes:
        call: the overload.
        kind: which of the known schemas it has.
    """

    call: Any
    kind: str


def find(known: Mapping[str, str]) -> Found | None:
    """The first registered operator that has one of these schemas, in their order; ``None`` where none of the names is.

    Whether a schema declares its mutations does not matter: statehal's own operators declare them.

    Args:
        known: by kind, schemas with namespace and name.

    Raises:
        Unsupported: operators of these names are registered, and all have other schemas.
    """
    present: dict[str, Any] = {}
    for kind, text in known.items():
        schema = torch._C.parse_schema(text)
        for overload in overloads(schema.name):
            present[str(overload._schema)] = overload
            if signature(overload._schema) == signature(schema):
                return Found(overload, kind)
    if present:
        raise Unsupported(drift(list(present), list(known.values())))
    return None


def overloads(name: str) -> list[Any]:
    """All overloads of an operator such as ``"npu::causal_conv1d"``; none where it is not registered."""
    namespace, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return [] if packet is None else [getattr(packet, one) for one in packet.overloads()]


def signature(schema: Any) -> tuple[object, ...]:
    """What a call by keywords depends on: names, types and defaults of arguments, and types of results."""
    arguments = [
        (one.name, str(one.type), one.has_default_value(), one.default_value if one.has_default_value() else None)
        for one in schema.arguments
    ]
    return schema.name, tuple(arguments), tuple(str(one.type) for one in schema.returns)


def drift(present: Sequence[str], known: Sequence[str]) -> str:
    """What is wrong where an operator's schema is none of those that are known."""
    return (
        f"the operator is registered as {'; '.join(present)}, which is none of the schemas that this backend calls: "
        f"{'; '.join(known)} (fix: install the operators that statehal-ascend-npu was written for, or a "
        f"statehal-ascend-npu that knows these)"
    )
