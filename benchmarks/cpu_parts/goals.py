"""What rows are meant to reach, on one thread."""

from statehal.bench import Row

OF_COPY = {
    ("conv prefill", "2048 tokens"): 1.5,
    ("conv prefill", "4096 tokens"): 1.5,
    ("conv decode", "16 requests"): 1.0,
    ("conv decode", "256 requests"): 1.0,
    ("conv verify + commit", ""): 1.3,
    ("kv write", ""): 1.2,
}
"""Multiples of the copy, at most, by operation and case, or by operation."""

MICROSECONDS = {("kernel ids", "8192 int64"): 8.192, ("fixed cost", ""): 4.0}
"""Of a call, at most: one nanosecond an id, and what a call costs before it does anything."""

TIMES = {
    ("conv prefill", "2048 tokens", "engine"): 3.0,
    ("conv prefill", "4096 tokens", "engine"): 3.0,
    ("conv prefill", "2048 tokens", "transformers, its layout"): 10.0,
    ("conv prefill", "4096 tokens", "transformers, its layout"): 10.0,
    ("kv write, float8_e4m3fn", "", "torch chain"): 3.0,
}
"""How many times as long peers take, at least, by operation and case, or by operation."""

TOUCHED = " in touched memory"
"""Behind the name of a peer whose results lie in memory that was touched before."""


def goals(row: Row) -> dict[str, bool]:
    """Each goal of a row in words, and whether it was reached: of a peer with two figures, by the lower."""
    found: dict[str, bool] = {}
    for due, got, unit in ((OF_COPY, row.of_copy, "x the copy"), (MICROSECONDS, row.us, "us")):
        most = due.get((row.name, row.case), due.get((row.name, "")))
        if most is not None:
            found[f"at most {most:g} {unit}"] = got <= most
    for (name, case, peer), least in TIMES.items():
        if name == row.name and case in ("", row.case) and peer in row.peers:
            times = min(row.peers[peer], row.peers.get(peer + TOUCHED, row.peers[peer]))
            found[f"{peer}: at least {least:g} x as long"] = times >= least
    return found
