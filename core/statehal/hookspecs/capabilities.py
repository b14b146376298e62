"""Capability tags: what a backend claims beyond the must-pass part of the contract."""

IDS64 = "ids64"
"""Kernels take 64-bit ids and block offsets."""

STORES = (
    "store:float32",
    "store:bfloat16",
    "store:float16",
    "store:float8_e4m3fn",
    "store:float8_e4m3fnuz",
    "store:float8_e5m2",
    "store:float8_e5m2fnuz",
    "store:int8",
)
"""Storage dtypes of attention rows."""

SCALES = "scales:per_token_head"
"""Scales by token and head, computed and stored beside fp8 or int8 rows."""

WINDOWS = ("window:float32", "window:bfloat16", "window:float16")
"""Dtypes of conv windows."""

SNAPSHOTS = "snapshots"
"""``prefill(snapshots=...)``."""

TREES = "trees"
"""``verify(parents=...)`` and ``commit(path=...)``."""

TRACKING = "tracking"
"""``commit(track_slots=...)``."""

REPLAY = "replay"
"""Replay rings."""

CAPABILITIES = frozenset((IDS64, *STORES, SCALES, *WINDOWS, SNAPSHOTS, TREES, TRACKING, REPLAY))
"""All tags of this version of the contract."""
