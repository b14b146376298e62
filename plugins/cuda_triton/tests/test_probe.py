"""Where the backend is ready, what it says where it is not, and which layouts it wants."""

from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from statehal.errors import EnvError
from statehal.layout import PoolLayout
from statehal.spec import Attention, ConvRecurrent, Latent
from statehal_cuda_triton import statehal_backend_info
from statehal_cuda_triton.layouts import LAYOUT, conv_layout, pool_layout
from statehal_cuda_triton.probe import probe
from statehal_cuda_triton.tuning import SINCE, compiled, tuning


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend a build of torch and a GPU."""
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)

    def pretend(
        *, cuda: str | None = "13.0", hip: str | None = None, capability: tuple[int, int] | None = (9, 0)
    ) -> None:
        def properties(device: str) -> Any:
            if capability is None:
                raise RuntimeError("Found no NVIDIA driver on your system.\nmore lines")
            return SimpleNamespace(name="H", major=capability[0], minor=capability[1])

        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)

    return pretend


def test_ready_on_an_nvidia_gpu(machine: Any) -> None:
    machine()
    found = probe("cuda:0")
    assert (found.state, found.reason) == ("ready", "")
    assert found.details["capability"] == "9.0"
    assert found.details["cuda"] == "13.0"


@pytest.mark.parametrize(
    ("build", "device", "reason"),
    [
        ({}, "cpu", "it runs on NVIDIA GPUs, not on 'cpu'"),
        ({"cuda": None}, "cuda", "this torch is built without CUDA"),
        ({"cuda": None, "hip": "7.0"}, "cuda", "this torch is built for ROCm 7.0"),
        ({"capability": None}, "cuda:0", "no such GPU: Found no NVIDIA driver on your system."),
        ({"capability": (7, 5)}, "cuda:0", "H has compute capability 7.5"),
    ],
    ids=["another device", "no CUDA", "ROCm", "no driver", "an old GPU"],
)
def test_not_ready_with_reason_and_fix(machine: Any, build: Any, device: str, reason: str) -> None:
    machine(**build)
    found = probe(device)
    assert (found.state, found.reason) == ("unavailable", reason)
    assert found.fix


def test_interpreted_it_is_ready_on_the_host_alone(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    assert probe("cpu").state == "ready"
    assert probe("cpu").details["kernels"] == "interpreted on the host, TRITON_INTERPRET=1"
    assert probe("cuda").state == "unavailable"


def forms(layout: PoolLayout) -> dict[str, tuple[str, ...]]:
    return {field.name: layout.kinds(field.name) for field in layout.fields}


def test_equal_rows_have_row_and_block_forms_and_scales_the_page_form() -> None:
    spec = Attention("a", (0, 1), 2, 64, "int8", scales="per_token_head")
    made = forms(pool_layout(spec, 16))
    assert made == {"k": ("row", "block"), "v": ("row", "block"), "k_scale": ("page",), "v_scale": ("page",)}
    assert forms(pool_layout(Latent("m", (0,), 512, 64, "bfloat16"), 16)) == {"latent": ("row", "block")}


def test_unequal_rows_have_the_row_form_alone() -> None:
    made = forms(pool_layout(Attention("a", (0,), 2, 192, "bfloat16", v_head_dim=128), 16))
    assert made == {"k": ("row",), "v": ("row",)}


def test_token_major_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAYOUT.name, "token_major")
    layout = pool_layout(Attention("a", (0, 1), 2, 192, "bfloat16", v_head_dim=128), 16)
    strides = {field.token_stride for field in layout.fields}
    assert strides == {2 * 2 * (192 + 128) * 2}
    monkeypatch.setenv(LAYOUT.name, "tokens")
    with pytest.raises(EnvError, match="STATEHAL_CUDA_TRITON_LAYOUT='tokens'"):
        pool_layout(Attention("a", (0,), 2, 64, "bfloat16"), 16)


def test_windows_have_rows_first_in_a_ring() -> None:
    made = conv_layout(ConvRecurrent("c", (0,), 64, 4, "bfloat16"))
    assert (made.window_order, made.protocol) == ("rows_first", "ring")


@pytest.mark.parametrize(
    ("capability", "since"),
    [((8, 0), (8, 0)), ((8, 6), (8, 0)), ((8, 9), (8, 9)), ((9, 0), (9, 0)), ((10, 3), (10, 0)), ((13, 7), (12, 0))],
)
def test_every_capability_has_a_tuning(
    capability: tuple[int, int], since: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    tuning.cache_clear()
    assert tuning("cuda:0") is SINCE[since]
    assert tuning("cuda:0").kv.fp8_by_ptx is (capability >= (8, 9))
    tuning.cache_clear()


def test_every_tuning_is_compiled_ahead_of_time() -> None:
    (entry,) = entry_points(group="statehal_triton_ops.tunings", name="cuda_triton")
    assert entry.load() is compiled
    assert {one for _, one in compiled()} == {one for entry in SINCE.values() for one in (entry.kv, entry.conv)}


@pytest.mark.parametrize(("value", "types", "priority"), [("1", {"cuda", "cpu"}, -100), ("0", {"cuda"}, 100)])
def test_interpreted_it_is_offered_on_the_host_and_doctor_says_so(
    value: str, types: set[str], priority: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", value)
    info = statehal_backend_info()
    assert (set(info.device_types), info.priority) == (types, priority)
    assert "TRITON_INTERPRET" in {variable.name for variable in info.variables}
