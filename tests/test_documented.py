"""No error and no hook without documentation, and no trace of somebody's machine in the tree."""

import inspect
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from doc_blocks import ROOT
from statehal import errors
from statehal.hookspecs import HookSpecs

ERROR_CLASSES = [
    value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and value.__module__ == errors.__name__ and not name.startswith("_")
]
HOOKS = [value for name, value in vars(HookSpecs).items() if name.startswith("statehal_")]
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
