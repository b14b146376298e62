"""Offloading: state stored and loaded while the host goes on, and reused by whoever reads the same tokens.

``RankPool`` names a pool's state, ``Prefix`` a request's tokens; an ``Offloader`` moves blocks between the pool and any
``BlockStore``, and its ``lookup`` says after which lengths of a prompt a request can go on.
"""

from statehal.portability.offload.lengths import Need, chunk_ends, longest_common, usable_lengths
from statehal.portability.offload.lookup import Lookup
from statehal.portability.offload.offloader import Offloader
from statehal.portability.offload.prefix import Prefix
from statehal.portability.offload.rank_pool import RankPool
from statehal.portability.offload.transfer import Load, Progress, Transfer

__all__ = [
    "Load",
    "Lookup",
    "Need",
    "Offloader",
    "Prefix",
    "Progress",
    "RankPool",
    "Transfer",
    "chunk_ends",
    "longest_common",
    "usable_lengths",
]
