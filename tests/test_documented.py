"""No error, hook or public module without documentation, and no trace of somebody's machine in the tree."""

import inspect
import pkgutil
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import statehal
from doc_blocks import ROOT
from statehal import errors, reference
from statehal.hookspecs import OPERATION_HOOKS, HookSpecs, methods_of
from statehal.testing import CHECKS
from statehal.testing.audit import LABELS

ERROR_CLASSES = [
    value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and value.__module__ == errors.__name__ and not name.startswith("_")
]
HOOKS = [value for name, value in vars(HookSpecs).items() if name.startswith("statehal_")]
METHODS = [(hook, method) for hook in OPERATION_HOOKS for method in methods_of(hook)]
MODULES = {module.name for module in pkgutil.iter_modules(statehal.__path__, "statehal.")}
# A command line and a backend are run, not imported.
PUBLIC_MODULES = {name for name in MODULES if "._" not in name} - {"statehal.cli", "statehal.reference"}
TEST_FILES = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("hosts/*/tests/**/*.py"), *ROOT.glob("plugins/*/tests/**/*.py")]
# An absolute path that only one machine has. Examples write relative paths, so `tmp` is among them.
MACHINE_PATH = re.compile(r"(?<![\w./~])/(?:home|root|tmp|Users|work|workspace)/\w")


@pytest.mark.parametrize("error", ERROR_CLASSES, ids=lambda error: error.__name__)
def test_every_error_is_a_statehal_error_and_documented(error: type[Exception]) -> None:
    assert issubclass(error, errors.StatehalError)
    assert error.__doc__
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    assert f"`{error.__name__}`" in page, f"docs/errors.md has no line for {error.__name__}"


def test_errors_page_names_no_class_that_is_gone() -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\W*`(\w+)`", page, re.MULTILINE))
    assert named <= {error.__name__ for error in ERROR_CLASSES}


def signature(hook: Callable[..., Any]) -> str:
    """What a plugin writes, on one line: ``statehal_probe(device: str) -> Probe``."""
    text = f"{hook.__name__}{inspect.signature(hook)}"
    return text.replace("(self, ", "(").replace("(self)", "()").replace("'", "")


def test_there_are_hooks() -> None:
    assert len(HOOKS) >= 8


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.__name__)
def test_every_hook_is_documented_with_its_exact_signature(hook: Callable[..., Any]) -> None:
    page = (ROOT / "docs/contract.md").read_text(encoding="utf-8")
    assert hook.__doc__
    assert signature(hook) in page, f"docs/contract.md lacks `{signature(hook)}`"


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.__name__)
def test_every_hook_has_a_test_with_a_plugin_that_implements_it(hook: Callable[..., Any]) -> None:
    implementation = f"def {hook.__name__}("
    found = [path for path in TEST_FILES if implementation in path.read_text(encoding="utf-8")]
    assert found, f"no test implements {hook.__name__}"


def test_every_hook_but_a_hosts_own_choice_is_answered_by_a_plugin_that_ships() -> None:
    unanswered = {hook.__name__ for hook in HOOKS if not hasattr(reference, hook.__name__)}
    assert unanswered == {"statehal_choose_backend"}


@pytest.mark.parametrize(("hook", "method"), METHODS)
def test_every_method_is_held_to_the_contract_by_a_check(hook: str, method: str) -> None:
    name = f"{LABELS[hook]}.{method}"
    assert [check.name for check in CHECKS.values() if name in check.needs], f"no check needs {name}"


@pytest.mark.parametrize("module", ["statehal", *sorted(PUBLIC_MODULES)])
def test_every_public_module_has_a_page_of_the_reference(module: str) -> None:
    """The page names the module; that it then holds every public name, and is in the nav, `make docs` sees to."""
    page = ROOT / "docs/reference" / f"{module.removeprefix('statehal.')}.md"
    assert page.exists(), f"docs/reference has no page of {module}"
    assert f"\n::: {module}\n" in page.read_text(encoding="utf-8")


def test_no_file_mentions_a_path_of_somebodys_machine() -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    run = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip("not a git checkout: which files belong to the tree is unknown")
    found = []
    for name in filter(None, run.stdout.split("\0")):
        text = (ROOT / name).read_bytes().decode("utf-8", errors="ignore") if (ROOT / name).is_file() else ""
        found += [f"{name}: {match.group()}" for match in MACHINE_PATH.finditer(text)]
    assert found == []
