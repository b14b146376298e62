"""The checks of stores, by topic; importing this registers them all."""

from statehal.testing.stores.checks import batches, contents, damage, names

__all__ = ["batches", "contents", "damage", "names"]
