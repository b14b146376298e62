"""examples/statehal-acme and -site, copied and installed as an author's: found, chosen, overridden, and conforming."""

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from examples.throwaway import EXAMPLES, FASTER, Environment

pytestmark = pytest.mark.xdist_group("examples")

NO_SITE = {"STATEHAL_DISABLE": f"{FASTER},acme-site".lstrip(",")}
NO_REFERENCE = {"STATEHAL_DISABLE": f"{FASTER},reference".lstrip(",")}

CASES: dict[str, tuple[str | None, dict[str, str]]] = {
    "nothing named": (None, {}),
    "named by the caller": ("acme", {}),
    "named by the environment": (None, {"STATEHAL_BACKEND": "acme"}),
    "without the reference": (None, NO_REFERENCE),
    "without the site": ("acme", NO_SITE),
    "reference": ("reference", {}),
    "reference without the site": ("reference", NO_SITE),
}
"""What ``bind`` is given, and the environment; one process asks for all of them, one after the other."""

PROGRAM = """
import json, os, sys
import statehal
from statehal import registry
from statehal.spec import Attention, ConvRecurrent

specs = [
    Attention("full", (0,), 2, 8, "bfloat16"),
    Attention("bytes", (1,), 2, 8, "int8"),
    ConvRecurrent("gdn", (2,), 8, 4, "bfloat16"),
]
found, given = {}, dict(os.environ)
for case, (name, environ) in json.loads(sys.argv[1]).items():
    os.environ.update(environ)
    registry.reset()
    hal = statehal.bind("cpu", backend=name)
    described = hal.describe(hal.allocate(hal.plan(specs, tokens=64, page_size=16)))
    found[case] = [described.backend, described.reason, dict(described.layouts), dict(described.methods)]
    for key in environ:
        os.environ[key] = given.get(key, "")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with both distributions, installed from copies."""
    made = Environment(tmp_path_factory.mktemp("acme"))
    copies = [made.folder / name for name in ("statehal-acme", "statehal-acme-site")]
    for copy in copies:
        shutil.copytree(EXAMPLES / copy.name, copy, ignore=shutil.ignore_patterns("__pycache__"))
    made.install(*copies)
    return made


@pytest.fixture(scope="module")
def bound(place: Environment) -> Any:
    """By case: backend, reason, layouts, methods."""
    return json.loads(place.run("-c", PROGRAM, json.dumps(CASES)))


def test_doctor_lists_it_below_the_reference(place: Environment) -> None:
    report = json.loads(place.run("-m", "statehal", "doctor", "--json"))
    states = {row["name"]: (row["state"], row["priority"]) for row in report["backends"]}
    assert states["acme"] == ("ready", -10)
    assert report["overrides"].keys() == {"acme-site"}
    assert "statehal-acme-site 0.1.0" in report["overrides"]["acme-site"]
    assert [one for one in report["problems"] if one["severity"] != "note"] == []
    assert [row["backend"] for row in report["devices"] if row["device"] == "cpu"] == ["reference"]


def test_it_is_chosen_by_name_and_by_priority_alone_where_nothing_outranks_it(bound: Any) -> None:
    assert bound["nothing named"][:2] == ["reference", "highest priority of the ready: 'reference' 0, 'acme' -10"]
    assert bound["named by the caller"][:2] == ["acme", "named by the caller"]
    assert bound["named by the environment"][:2] == ["acme", "named by STATEHAL_BACKEND=acme"]
    assert bound["without the reference"][:2] == ["acme", "highest priority of the ready: 'acme' -10"]


def test_it_does_what_it_claims_and_the_rest_is_listed(bound: Any) -> None:
    _, _, layouts, methods = bound["without the site"]
    assert layouts == {"full": "acme", "bytes": "acme", "gdn": "acme"}
    fallbacks = {name for name, provider in methods.items() if provider == "reference"}
    rows = {f"bytes: kv.{name}" for name in ("write", "rope_write", "write_latent", "move")}  # int8 is not claimed
    kv = {"full: kv.rope_write", "full: kv.write_latent"}
    memory = {f"memory.{name}" for name in ("gather", "scatter", "alloc_pinned", "record", "wait")}
    assert fallbacks == rows | kv | memory


@pytest.mark.parametrize(
    ("without", "site"), [("without the site", "named by the caller"), ("reference without the site", "reference")]
)
def test_the_site_overrides_one_method_of_any_backend(bound: Any, without: str, site: str) -> None:
    before, after = bound[without][3], bound[site][3]
    assert {method for method in before if before[method] != after[method]} == {"memory.zero_pages"}
    assert after["memory.zero_pages"] == "acme-site"


def test_the_override_is_judged_with_it(place: Environment) -> None:
    report = json.loads(
        place.run("-m", "statehal", "check", "acme", "--json", "--profile", "dev", "--only", "memory_ops")
    )
    assert report["ok"]
    assert report["overrides"] == {"memory.zero_pages": "acme-site"}
    passed = {result["check"] for result in report["results"] if result["status"] == "passed"}
    assert "memory_ops/zero_pages_zeroes_these_bytes_alone" in passed


def test_its_own_tests_run_under_pytest(place: Environment) -> None:
    file = place.folder / "statehal-acme/tests/test_conformance.py"
    assert len(file.read_text().splitlines()) <= 8
    options = ("-q", "-p", "no:cacheprovider", "--statehal-profile", "dev", "-k", "kv_move or conv_slots or the_run")
    printed = place.run("-m", "pytest", *options, str(file), environ=NO_SITE, cwd=file.parents[1])
    assert "6 passed" in printed


def test_it_imports_no_backend_and_nothing_private() -> None:
    for path in sorted(EXAMPLES.glob("statehal-acme*/src/**/*.py")):
        for name in imported(path):
            assert not name.startswith("statehal.reference"), f"{path} imports {name}"
            assert not any(part.startswith("_") for part in name.split(".")), f"{path} imports {name}"


def imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
