"""What the tree promises about imports: who imports whom, what loads torch, and that no device is named in the core."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_blocks import ROOT

HEAVY = ("torch", "triton", "transformers", "numpy", "hypothesis", "safetensors", "xxhash", "fsspec", "mooncake")
LIGHT = {
    "statehal": "import statehal",
    "cli": "import statehal.cli",
    "doctor": "import statehal.doctor",
    "hookspecs": "import statehal.hookspecs; statehal.hookimpl",
    "layout": "import statehal.layout",
    "plan": "import statehal; statehal.plan",
    "store": "import statehal.portability.store, statehal.testing.stores",
    "registry": "import statehal.registry",
    "spec": "import statehal; statehal.Attention",
    "testing": "import statehal.testing, statehal.testing.pytest_plugin",
    "trace": "import statehal.trace",
}
VENDOR_DEVICE = re.compile(r"(cuda|hip|npu|xpu|mps|musa|mlu)(:\d+)?")


@pytest.mark.parametrize("statement", LIGHT.values(), ids=LIGHT)
def test_importing_loads_no_torch(statement: str) -> None:
    program = f"import json, sys; {statement}; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout) == []


def test_import_contracts_are_kept() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def device_literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string, docstrings aside, that names a vendor's device, and every ``x.cuda()``."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if VENDOR_DEVICE.fullmatch(text):
                yield node.lineno, text
            case ast.Call(func=ast.Attribute(attr=method), args=[]) if VENDOR_DEVICE.fullmatch(method):
                yield node.lineno, f".{method}()"


def test_the_core_names_no_vendors_device() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "core").rglob("*.py"))
        for line, text in device_literals(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("torch.empty(2, device='cuda')", ["cuda"]),
        ("torch.device('cuda:0')", ["cuda:0"]),
        ("def f(device='npu'): ...", ["npu"]),
        ("x.to('cuda')", ["cuda"]),
        ("x.cuda()", [".cuda()"]),
        ("torch.empty(2, device=like.device)", []),
        ("'''Such as cuda:0.'''", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_device_literal_is_seen(source: str, found: list[str]) -> None:
    assert [text for _, text in device_literals(source)] == found
