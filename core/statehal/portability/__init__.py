"""State that outlives its topology: certification, canonical order, copies between layouts, and stores.

Names that need torch are imported when first used.
"""

from typing import TYPE_CHECKING

from statehal._lazy import lazy_exports
from statehal.portability.certify import Verdict, certify, certify_pool
from statehal.portability.grouping import Grouping, SubPoolGrouping
from statehal.portability.parts import ALIGNMENT, ObjectLayout, PartLayout, Piece, parts
from statehal.portability.ranks import holders, rank_object, writer
from statehal.portability.sections import Section, sections
from statehal.portability.topology import Topology, shard

if TYPE_CHECKING:
    from statehal.portability.canonical import CanonicalState
    from statehal.portability.conversion import Conversion
    from statehal.portability.rank_subpool import RankSubPool

__getattr__, __dir__ = lazy_exports(
    __name__,
    {"CanonicalState": ".canonical", "Conversion": ".conversion", "RankSubPool": ".rank_subpool"},
)

__all__ = [
    "ALIGNMENT",
    "CanonicalState",
    "Conversion",
    "Grouping",
    "ObjectLayout",
    "PartLayout",
    "Piece",
    "RankSubPool",
    "Section",
    "SubPoolGrouping",
    "Topology",
    "Verdict",
    "certify",
    "certify_pool",
    "holders",
    "parts",
    "rank_object",
    "sections",
    "shard",
    "writer",
]
