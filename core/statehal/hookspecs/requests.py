"""What the binding asks of a plugin, one request type for each hook that makes something."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statehal.ids import IdSpace
    from statehal.pool import SubPool
    from statehal.spec import ConvRecurrent, Spec


@dataclass(frozen=True)
class PoolLayoutRequest:
    """A layout is wanted for the rows of ``spec``, ``page_size`` tokens a page, on ``device``."""

    spec: "Spec"
    page_size: int
    device: str


@dataclass(frozen=True)
class ConvStateLayoutRequest:
    """Window order, channel padding and commit protocol are wanted for ``spec`` on ``device``."""

    spec: "ConvRecurrent"
    device: str


@dataclass(frozen=True)
class KVWriteRequest:
    """The writer of ``subpool`` is wanted.

    Attributes:
        subpool: the sub-pool that will be written; its views and layout are final.
        device: the device of its buffer.
        ids: the space of the ids that the writer will be given; ``None``: the sub-pool's own kernel ids of tokens. A
            plugin that takes no others refuses by ``statehal.arguments.require_own_ids``, which ``KVArguments`` calls.
    """

    subpool: "SubPool"
    device: str
    ids: "IdSpace | None" = None


@dataclass(frozen=True)
class CausalConv1dRequest:
    """The conv operations of ``subpool`` are wanted, which lies on ``device``."""

    subpool: "SubPool"
    device: str


@dataclass(frozen=True)
class MemoryOpsRequest:
    """The memory operations of ``device`` are wanted; they serve every pool on it."""

    device: str
