"""Parts of blocks in storage: names, the file of a part, and stores that are checked by one suite.

``Namespace`` says what bytes mean, ``block_keys`` which tokens they are of, ``PartRef`` which piece; a ``BlockStore``
keeps them: ``FileStore`` in a directory, ``FsspecStore`` on an object store, ``MooncakeStore`` in the memory of many
machines. All need ``xxhash`` (``pip install statehal[store]``), the last two ``statehal[fsspec]`` and
``statehal[mooncake]``.
"""

from statehal.portability.store.buffers import BufferLike
from statehal.portability.store.eviction import Evicted
from statehal.portability.store.file_store import FileStore
from statehal.portability.store.fsspec_store import FsspecStore
from statehal.portability.store.keys import ROOT, block_key, block_keys
from statehal.portability.store.mooncake_client import MooncakeClient
from statehal.portability.store.mooncake_store import MooncakeStore
from statehal.portability.store.namespace import STORE_FORMAT, Namespace
from statehal.portability.store.outcome import Outcome, Reason
from statehal.portability.store.part_format import head_bytes
from statehal.portability.store.protocol import BlockStore, PartRef, RegisteredMemory, RegisteringStore, present

__all__ = [
    "ROOT",
    "STORE_FORMAT",
    "BlockStore",
    "BufferLike",
    "Evicted",
    "FileStore",
    "FsspecStore",
    "MooncakeClient",
    "MooncakeStore",
    "Namespace",
    "Outcome",
    "PartRef",
    "Reason",
    "RegisteredMemory",
    "RegisteringStore",
    "block_key",
    "block_keys",
    "head_bytes",
    "present",
]
