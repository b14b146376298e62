"""Where the backend is ready, what it says where it is not, and which layouts and tile sizes it wants."""

import json
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from plugin_fakes import run_python
from statehal import doctor
from statehal.errors import EnvError, LayoutError
from statehal.layout import PoolLayout
from statehal.spec import Attention, ConvRecurrent, Latent
from statehal_hip import statehal_backend_info
from statehal_hip.layouts import LAYOUT, conv_layout, pool_layout
from statehal_hip.probe import probe
from statehal_hip.targets import ARCH, TARGETS, named, target_of
from statehal_hip.tuning import BY_TARGET, compiled, tuning


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend a build of torch and a GPU."""
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    tuning.cache_clear()

    def pretend(
        *,
        cuda: str | None = None,
        hip: str | None = "7.1.2",
        processor: str | None = "gfx942:sramecc+:xnack-",
        wave: int = 64,
    ) -> None:
        def properties(device: str) -> Any:
            if processor is None:
                raise RuntimeError("No HIP GPUs are available\nmore lines")
            return SimpleNamespace(name="Instinct", gcnArchName=processor, warp_size=wave)

        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)

    yield pretend
    tuning.cache_clear()


def test_ready_on_an_amd_gpu(machine: Any) -> None:
    machine()
    found = probe("cuda:0")
    assert (found.state, found.reason) == ("ready", "")
    assert found.details["processor"] == "gfx942:sramecc+:xnack-"
    assert (found.details["target"], found.details["wave"], found.details["rocm"]) == ("gfx942", "64", "7.1.2")
    assert found.details["fp8"] == "float8_e4m3fnuz, float8_e5m2fnuz: of its instructions"
    assert found.details["driver"]


@pytest.mark.parametrize(
    ("build", "device", "state", "reason"),
    [
        ({}, "cpu", "unavailable", "it runs on AMD GPUs, not on 'cpu'"),
        ({"hip": None}, "cuda", "unavailable", "torch.version.hip is None: this torch is built without ROCm"),
        (
            {"hip": None, "cuda": "13.0"}, "cuda", "unavailable",
            "torch.version.hip is None: this torch is built for CUDA 13.0",
        ),
        ({"processor": None}, "cuda:0", "unavailable", "no such GPU: No HIP GPUs are available"),
        (
            {"processor": "gfx1250", "wave": 32}, "cuda:0", "unavailable",
            "'gfx1250' is like none of the targets that kernels are compiled for: " + ", ".join(TARGETS),
        ),
        ({"wave": 32}, "cuda:0", "broken", "Instinct runs waves of 32, and the kernels for gfx942 are tuned for 64"),
    ],
    ids=["another device", "no ROCm", "CUDA", "no driver", "another GPU", "another wave"],
)  # fmt: skip
def test_not_ready_with_reason_and_fix(machine: Any, build: Any, device: str, state: str, reason: str) -> None:
    machine(**build)
    found = probe(device)
    assert (found.state, found.reason) == (state, reason)
    assert found.fix


def test_doctor_shows_it_beside_others_where_there_is_no_gpu(machine: Any) -> None:
    machine(hip=None)
    found = doctor.report(environ={})
    rows = {row.name: row for row in found.backends if row.device == "cuda"}
    assert {"hip", "cuda_triton"} <= set(rows)
    assert (rows["hip"].state, rows["hip"].reason, rows["hip"].fix) == (
        "unavailable",
        "torch.version.hip is None: this torch is built without ROCm",
        "install a ROCm build of torch",
    )
    assert not [problem for problem in found.problems if "hip" in str(problem)]


def test_interpreted_it_is_ready_on_the_host_alone(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = probe("cpu")
    assert (found.state, found.details["target"]) == ("ready", "gfx942")
    assert found.details["kernels"] == "interpreted on the host, TRITON_INTERPRET=1"
    assert probe("cuda").state == "unavailable"
    monkeypatch.setenv(ARCH.name, "gfx1100")
    assert probe("cpu").details["fp8"] == "float8_e4m3fn, float8_e5m2: by integers, it has no instructions for them"
    assert tuning("cpu") is BY_TARGET["gfx1100"]
    monkeypatch.setenv(ARCH.name, "gfx9")
    found = probe("cpu")
    assert (found.state, found.fix) == ("broken", "unset it or use one of these")
    assert found.reason == "STATEHAL_HIP_ARCH='gfx9': expected one of gfx90a, gfx942, gfx950, gfx1100, gfx1201"


def test_on_a_gpu_the_variable_may_only_say_what_it_is(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(processor="gfx950")
    monkeypatch.setenv(ARCH.name, "gfx950")
    assert probe("cuda:0").state == "ready"
    monkeypatch.setenv(ARCH.name, "gfx942")
    found = probe("cuda:0")
    assert (found.state, found.reason) == ("broken", "STATEHAL_HIP_ARCH='gfx942': 'cuda:0' is a gfx950")
    assert found.fix == "unset it; it chooses a target only where TRITON_INTERPRET=1"
    with pytest.raises(EnvError, match="is a gfx950"):
        target_of("cuda:0")


@pytest.mark.parametrize(
    ("processor", "wave", "target"),
    [
        ("gfx90a:sramecc+", 64, "gfx90a"),
        ("gfx1100", 32, "gfx1100"),
        ("gfx1151", 32, "gfx1100"),
        ("gfx1200", 32, "gfx1201"),
    ],
)
def test_every_processor_has_a_target_and_its_tile_sizes(machine: Any, processor: str, wave: int, target: str) -> None:
    machine(processor=processor, wave=wave)
    assert probe("cuda:0").details["target"] == target
    assert named(processor).wave == wave
    assert tuning("cuda:0") is BY_TARGET[target]
    sizes = tuning("cuda:0")
    assert sizes.conv.lanes == wave
    assert (sizes.kv.num_warps * wave, sizes.conv.warps * wave) == (128, 64)


def test_every_tuning_is_compiled_ahead_of_time() -> None:
    (entry,) = entry_points(group="statehal_triton_ops.tunings", name="hip")
    assert entry.load() is compiled
    for name, sizes in BY_TARGET.items():
        family = f"hip{TARGETS[name].wave}"
        assert {(family, sizes.kv), (family, sizes.conv)} <= set(compiled())
    from statehal_triton_ops.compile.targets import TARGETS as COMPILED

    assert {target.name for target in COMPILED.values() if target.backend == "hip"} == set(TARGETS)
    assert all(COMPILED[name].warp_size == target.wave for name, target in TARGETS.items())


@pytest.mark.parametrize(("value", "types", "priority"), [("1", {"cuda", "cpu"}, -110), ("0", {"cuda"}, 100)])
def test_interpreted_it_is_offered_on_the_host_and_doctor_says_so(
    value: str, types: set[str], priority: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statehal_cuda_triton import statehal_backend_info as of_cuda

    monkeypatch.setenv("TRITON_INTERPRET", value)
    info = statehal_backend_info()
    assert (set(info.device_types), info.priority) == (types, priority)
    assert {variable.name for variable in info.variables} == {LAYOUT.name, ARCH.name, "TRITON_INTERPRET"}
    assert value == "0" or info.priority != of_cuda().priority


def forms(layout: PoolLayout) -> dict[str, tuple[str, ...]]:
    return {field.name: layout.kinds(field.name) for field in layout.fields}


def test_page_major_rows_have_the_row_and_page_forms_and_equal_ones_blocks() -> None:
    spec = Attention("a", (0, 1), 2, 64, "int8", scales="per_token_head")
    every = ("row", "block", "page")
    assert forms(pool_layout(spec, 16)) == {"k": every, "v": every, "k_scale": ("page",), "v_scale": ("page",)}
    assert forms(pool_layout(Latent("m", (0,), 512, 64, "bfloat16"), 16)) == {"latent": every}
    unequal = pool_layout(Attention("a", (0,), 2, 192, "bfloat16", v_head_dim=128), 16)
    assert forms(unequal) == {"k": ("row", "page"), "v": ("row", "page")}


@pytest.mark.parametrize("order", ["x_packed", "shuffled"])
def test_packed_layouts_on_request(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAYOUT.name, order)
    layout = pool_layout(Attention("a", (0, 1), 2, 64, "bfloat16"), 16)
    assert forms(layout) == {"k": ("page", "block"), "v": ("page", "block")}
    assert layout.field("k").row_shape == (2, 8, 8)
    assert layout.field("v").token_shape == ((2, 8) if order == "shuffled" else (16,))
    assert forms(pool_layout(Latent("m", (0,), 512, 64, "bfloat16"), 16)) == {"latent": ("row", "block", "page")}
    with pytest.raises(LayoutError, match="x-packed K needs a multiple of 8"):
        pool_layout(Attention("a", (0,), 2, 12, "bfloat16"), 16)
    monkeypatch.setenv(LAYOUT.name, "packed")
    with pytest.raises(EnvError, match="STATEHAL_HIP_LAYOUT='packed'"):
        pool_layout(Attention("a", (0,), 2, 64, "bfloat16"), 16)


def test_windows_have_rows_first_in_a_ring() -> None:
    made = conv_layout(ConvRecurrent("c", (0,), 64, 4, "bfloat16"))
    assert (made.window_order, made.protocol) == ("rows_first", "ring")


PROGRAM = """
import json
from types import SimpleNamespace
import torch
import statehal

build, about = {build!r}, {about!r}
torch.version.cuda, torch.version.hip = build
torch.cuda.get_device_properties = lambda device: SimpleNamespace(**about)
hal = statehal.bind("cuda:0")
spec = statehal.Attention("full", (0, 1), 8, 128, "bfloat16")
found = {{name: hal.registry.probe(name, "cuda:0") for name in ("hip", "cuda_triton")}}
print(json.dumps({{
    "chosen": hal.backend,
    "reason": hal.selection.reason,
    "layout": hal.layout(spec, 16).kinds("k"),
    "translate": hal.describe().methods["memory.translate"],
    "probes": {{name: [one.state, one.reason, dict(one.details)] for name, one in found.items()}},
}}))
"""
MI300X = {"name": "AMD Instinct MI300X", "gcnArchName": "gfx942:sramecc+:xnack-", "warp_size": 64}
H200 = {"name": "NVIDIA H200", "major": 9, "minor": 0, "warp_size": 32}


@pytest.mark.parametrize(
    ("build", "about", "chosen", "other", "reason", "kinds"),
    [
        ((None, "7.1.2"), MI300X, "hip", "cuda_triton", "this torch is built for ROCm 7.1.2", ["row", "block", "page"]),
        (
            ("13.0", None), H200, "cuda_triton", "hip", "torch.version.hip is None: this torch is built for CUDA 13.0",
            ["row", "block"],
        ),
    ],
    ids=["ROCm", "CUDA"],
)  # fmt: skip
def test_each_claims_the_gpus_of_its_own_torch(
    build: Any, about: Any, chosen: str, other: str, reason: str, kinds: list[str]
) -> None:
    """A ROCm build of torch says "cuda", too; both plugins are installed and have one priority."""
    done = run_python("-c", PROGRAM.format(build=build, about=about), environ={"TRITON_INTERPRET": "0"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["chosen"], found["translate"], found["layout"]) == (chosen, chosen, kinds)
    assert found["reason"].split("; ")[0] == f"highest priority of the ready: {chosen!r} 100"
    assert found["probes"][chosen][0] == "ready"
    assert found["probes"][other][:2] == ["unavailable", reason]
    if chosen == "hip":
        details = found["probes"]["hip"][2]
        assert (details["gpu"], details["target"], details["wave"]) == ("AMD Instinct MI300X", "gfx942", "64")
