"""What the methods of every backend refuse, in one place: shapes, dtypes, devices, layers and ids that do not fit.

A backend makes ``KVArguments`` of a request, or ``ConvArguments`` of a sub-pool, once, and hands the arguments of each
call to the method of the same name before it does anything. Nothing here asks the device, and nothing is written.
"""

from statehal.arguments.conv import CommitIds, ConvArguments
from statehal.arguments.conv_plain import PrefillIds
from statehal.arguments.kv import KVArguments, key_rows, require_own_ids
from statehal.arguments.memory import require_gather_out, require_scatter_rows
from statehal.arguments.stored import StoredField

__all__ = [
    "CommitIds",
    "ConvArguments",
    "KVArguments",
    "PrefillIds",
    "StoredField",
    "key_rows",
    "require_gather_out",
    "require_own_ids",
    "require_scatter_rows",
]
