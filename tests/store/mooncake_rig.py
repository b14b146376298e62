"""A store on a double of Mooncake's client, and what tests ask of its outcomes."""

from typing import Any

from statehal.portability.store import MooncakeStore, PartRef
from store.placing import Placed
from store.scene import payload


def opened(client: Any, **options: Any) -> MooncakeStore:
    return MooncakeStore("nowhere/none", "none", connect=lambda: client, **{"wait_s": 10.0, "retry_s": 0.05} | options)


def name_of(ref: PartRef) -> str:
    """What a part is called in the cluster."""
    return f"{ref.namespace.digest}/{ref.key}/{ref.part.id}"


def reasons(outcomes: Any) -> list[str]:
    return [str(one.reason) for one in outcomes]


def placed(store: MooncakeStore, refs: list[PartRef], **named: Any) -> Placed:
    """Registered memory with the right payloads of parts."""
    return Placed(store, refs, **named).fill([payload(ref) for ref in refs])
