"""The two doors of pytest: the kit's own module, and an author's file."""

import subprocess
from pathlib import Path

import pytest

from plugin_fakes import run_python, write_distribution
from statehal.testing import CHECKS

ZETA = """\
from dataclasses import replace
import statehal.reference as reference
from statehal import Probe, hookimpl
from statehal.reference import *

@hookimpl
def statehal_backend_info():
    return replace(reference.statehal_backend_info(), name="zeta", device_types=frozenset({{"cpu"}}), {info})

@hookimpl
def statehal_probe(device):
    return {probe}

for name in dir(reference):
    if name.startswith("statehal_"):
        globals().setdefault(name, getattr(reference, name))
"""
AUTHOR = """\
from statehal.testing import conformance_tests

test_conformance = conformance_tests("zeta", device="cpu")
"""
WRITE = "kv_write/rows_lie_at_their_addresses"


def run_pytest(
    folder: Path, *arguments: str, info: str = "", probe: str = 'Probe("ready")'
) -> "subprocess.CompletedProcess[str]":
    """Run pytest where a backend ``zeta`` is installed."""
    site = folder / "site"
    site.mkdir()
    module = ZETA.format(info=info, probe=probe)
    write_distribution(site, "dist-zeta", "[statehal.backends]\nzeta = zeta_backend\n", {"zeta_backend": module})
    options = ("-p", "no:cacheprovider", "--rootdir", str(folder), "-rA", "--statehal-profile", "dev", "--color=no")
    return run_python("-m", "pytest", *options, *arguments, path=(site,))


def author(folder: Path, text: str = AUTHOR) -> str:
    path = folder / "test_zeta.py"
    path.write_text(text)
    return str(path)


def test_an_authors_file_has_a_test_a_check_and_one_for_the_run(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, author(tmp_path), "--collect-only", "-q")
    names = [line.partition("[")[2].removesuffix("]") for line in run.stdout.splitlines() if "[" in line]
    assert names == [*CHECKS, "the_run"], run.stdout


def test_a_check_passes_in_an_authors_file(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, author(tmp_path), "-k", f"{WRITE} or the_run")
    assert run.returncode == 0, run.stdout
    assert f"::test_conformance[{WRITE}]" in run.stdout
    assert "2 passed" in run.stdout


def test_outcomes_are_those_of_pytest(tmp_path: Path) -> None:
    """A skip with its reason, an unexpected pass, and a stray deviation in the test of the run."""
    info = f'unsupported={{"layout*": "no layouts"}}, expected_failures={{"{WRITE}": "bug 7", "kv_wriet/*": "a typo"}}'
    names = [name for name in CHECKS if name.startswith("layout")][:1]
    which = " or ".join([*names, WRITE, "the_run"])
    run = run_pytest(tmp_path, author(tmp_path), "-k", which, info=info)
    assert run.returncode == 1
    assert "skipped: no layouts" in run.stdout or not names
    assert "it passed, and 'zeta' declares that it fails: bug 7 (fix: take it out of expected_failures)" in run.stdout
    assert "'zeta' declares 'kv_wriet/*' in expected_failures (a typo), which matches no check" in run.stdout
    assert "2 failed" in run.stdout
    assert "Traceback" not in run.stdout


BROKEN = """\
import pytest
from statehal.testing import conformance_tests, conformance, CHECKS, Result

def judge(check, target, *, profile_name):
    assert profile_name == "dev"
    return Result(check.name, "xfailed", "bug 7", "the evidence")

conformance.judge = judge
test_conformance = conformance_tests("zeta")
"""


@pytest.mark.parametrize(("option", "text"), [("-v", "XFAIL"), ("--runxfail", "the evidence")])
def test_a_declared_failure_is_an_xfail_and_is_shown_under_runxfail(option: str, text: str, tmp_path: Path) -> None:
    run = run_pytest(tmp_path, author(tmp_path, BROKEN), option, "-k", WRITE)
    assert run.returncode == (option != "-v")
    assert text in run.stdout


def test_a_backend_that_is_not_there_fails_once_and_skips_the_rest(tmp_path: Path) -> None:
    probe = 'Probe("unavailable", "no such chip", "plug one in")'
    run = run_pytest(tmp_path, author(tmp_path), probe=probe)
    assert run.returncode == 1
    assert "backend 'zeta' is not ready for 'cpu': no such chip (fix: plug one in)" in run.stdout
    assert f"1 failed, {len(CHECKS)} skipped" in run.stdout


def test_pyargs_with_a_backend(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, "--pyargs", "statehal.testing", "--statehal-backend", "zeta", "-k", WRITE)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


def test_pyargs_without_a_backend_fails_with_what_to_pass(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, "--pyargs", "statehal.testing")
    assert run.returncode == 1
    assert "no backend to judge (fix: pass --statehal-backend NAME and" in run.stdout


def test_among_other_tests_it_is_one_skip(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, "--pyargs", "statehal.testing", author(tmp_path, "def test_other(): pass\n"))
    assert run.returncode == 0
    assert "1 passed, 1 skipped" in run.stdout


UNRELATED = """\
import sys

def test_nothing_was_imported(pytestconfig):
    assert not {"torch", "hypothesis", "numpy"} & set(sys.modules)
    assert pytestconfig.pluginmanager.has_plugin("statehal")
"""


def test_the_plugin_costs_other_runs_nothing(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, author(tmp_path, UNRELATED))
    assert run.returncode == 0, run.stdout
