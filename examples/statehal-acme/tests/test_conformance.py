"""The contract, a test a check: ``python -m pytest``, and with ``--statehal-profile dev`` for a quick look."""

from statehal.testing import conformance_tests

test_conformance = conformance_tests("acme")
