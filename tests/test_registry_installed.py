"""Discovery of distributions that are really installed, each time in a process of its own."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from plugin_fakes import run_python, write_distribution

# A whole backend: every hook of the contract, in a module, as an author writes it.
BACKEND = """
from statehal.hookspecs import BackendInfo, Probe, hookimpl

NAME = "{name}"


@hookimpl
def statehal_backend_info():
    return BackendInfo(NAME, frozenset({{"cpu"}}), priority={priority})


@hookimpl
def statehal_probe(device):
    return Probe("ready")


@hookimpl
def statehal_pool_layout(request):
    return ("pool layout", NAME, request)


@hookimpl
def statehal_conv_state_layout(request):
    return ("conv state layout", NAME, request)


@hookimpl
def statehal_fused_kv_write(request):
    return ("kv write", NAME, request)


@hookimpl
def statehal_causal_conv1d(request):
    return ("causal conv1d", NAME, request)


@hookimpl
def statehal_memory_ops(request):
    return ("memory ops", NAME, request)
"""
SITE = """
from statehal.hookspecs import hookimpl


@hookimpl
def statehal_choose_backend(device, candidates):
    return candidates[-1].name
"""
SHOW = """
import json, sys
from statehal.registry import Registry
registry = Registry.discover()
print(json.dumps({
    "backends": sorted(name for name, one in registry.backends.items() if one.source.distribution.startswith("dist-")),
    "overrides": sorted(registry.overrides),
    "failures": {name: [str(f), f.traceback] for name, f in registry.failures.items()},
    "conflicts": {name: str(c) for name, c in registry.conflicts.items()},
}))
"""


def group(name: str, value: str) -> str:
    return f"[statehal.backends]\n{name} = {value}\n"


def install_backend(folder: Path, name: str, priority: int = 0) -> None:
    module = f"{name}_backend"
    write_distribution(
        folder, f"dist-{name}", group(name, module), {module: BACKEND.format(name=name, priority=priority)}
    )


def show(*path: Path, **environ: str) -> Any:
    run = run_python("-c", SHOW, path=path, environ=environ)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_an_installed_backend_is_found_and_answers_every_hook(tmp_path: Path) -> None:
    install_backend(tmp_path, "alpha", priority=1000)
    write_distribution(tmp_path, "dist-site", group("site", "site_plugin"), {"site_plugin": SITE})
    program = """
    import json, sys
    from statehal import registry
    found = registry.get()
    assert found is registry.get()
    hooks = ["statehal_pool_layout", "statehal_conv_state_layout", "statehal_fused_kv_write",
             "statehal_causal_conv1d", "statehal_memory_ops"]
    print(json.dumps([found.providers(hook, "alpha")[0].call("r") for hook in hooks]))
    print(json.dumps([sorted(found.overrides), found.backends["alpha"].source.distribution]))
    registry.reset()
    assert found is not registry.get()
    """
    run = run_python("-c", dedent(program), path=(tmp_path,))
    assert run.returncode == 0, run.stderr
    answers, where = map(json.loads, run.stdout.splitlines())
    kinds = ["pool layout", "conv state layout", "kv write", "causal conv1d", "memory ops"]
    assert answers == [[kind, "alpha", "r"] for kind in kinds]
    assert where == [["site"], "dist-alpha"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("raise RuntimeError('vendor driver')", "RuntimeError: vendor driver"),
        ("import sys; sys.exit(1)", "SystemExit: 1"),
        ("import no_such_vendor_library", "ModuleNotFoundError: No module named 'no_such_vendor_library'"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_module_that_fails_at_import_leaves_the_others(tmp_path: Path, source: str, text: str) -> None:
    install_backend(tmp_path, "alpha")
    install_backend(tmp_path, "omega")
    write_distribution(tmp_path, "dist-boom", group("boom", "boom_backend"), {"boom_backend": source})
    shown = show(tmp_path)
    assert shown["backends"] == ["alpha", "omega"]
    ((name, (failure, traceback)),) = shown["failures"].items()
    assert (name, text in failure, "boom_backend" in traceback) == ("boom", True, True)
    assert "of dist-boom 1.0 (boom_backend)" in failure


def test_two_distributions_claim_one_name(tmp_path: Path) -> None:
    install_backend(tmp_path, "alpha")
    marker = 'print("imported")'
    write_distribution(tmp_path, "dist-one", group("same", "one_backend"), {"one_backend": marker})
    write_distribution(tmp_path, "dist-two", group("same", "two_backend"), {"two_backend": marker}, version="2.0")
    shown = show(tmp_path)
    assert shown["backends"] == ["alpha"]
    assert shown["conflicts"]["same"].startswith(
        "the name 'same' is claimed by dist-one 1.0 (one_backend) and by dist-two 2.0 (two_backend) (fix: uninstall"
    )


def test_a_distribution_seen_twice_on_the_path_is_one(tmp_path: Path) -> None:
    for folder in ("editable", "site"):
        install_backend(tmp_path / folder, "alpha")
    shown = show(tmp_path / "editable", tmp_path / "site")
    assert (shown["backends"], shown["conflicts"]) == (["alpha"], {})


def test_a_damaged_list_of_entry_points_hides_no_other(tmp_path: Path) -> None:
    install_backend(tmp_path, "alpha")
    write_distribution(tmp_path, "dist-bad", "[statehal.backends]\nthis line has no equals sign\n")
    write_distribution(tmp_path, "dist-foreign", "[console_scripts]\nno equals sign either\n")
    shown = show(tmp_path)
    assert shown["backends"] == ["alpha"]
    ((name, (failure, _)),) = shown["failures"].items()
    assert name == "dist-bad"
    assert "its list of entry points cannot be read" in failure
    assert failure.endswith("(fix: reinstall dist-bad)")


def test_a_disabled_plugin_is_not_imported(tmp_path: Path) -> None:
    write_distribution(tmp_path, "dist-boom", group("boom", "boom_backend"), {"boom_backend": "import os; os._exit(9)"})
    assert show(tmp_path, STATEHAL_DISABLE="boom")["failures"] == {}


def test_a_plugin_that_asks_for_the_registry_at_import_is_told_so(tmp_path: Path) -> None:
    source = "from statehal import registry\nregistry.get()\n"
    write_distribution(tmp_path, "dist-eager", group("eager", "eager_backend"), {"eager_backend": source})
    program = "from statehal import registry; print(registry.get().failures['eager'].reason)"
    run = run_python("-c", program, path=(tmp_path,))
    assert run.returncode == 0, run.stderr
    assert run.stdout == (
        "PluginBroken: the registry was asked for during discovery (fix: ask at first use, not at import)\n"
    )
