"""The conformance suite of stores: every ``BlockStore`` is held to the same checks.

``test_store = store_conformance_tests(lambda folder: StoreTarget(lambda: MyStore(folder)))`` in a test file makes a
test of each; ``run`` does without pytest. A check is a plain function of a ``StoreTarget``.
"""

from statehal.testing.stores.conformance import store_conformance_tests
from statehal.testing.stores.runner import CHECKS, run, run_check
from statehal.testing.stores.store_check import StoreCheck, StoreTarget

__all__ = ["CHECKS", "StoreCheck", "StoreTarget", "run", "run_check", "store_conformance_tests"]
