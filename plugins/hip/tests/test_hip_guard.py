"""The hook makes no writer for ids of another space than the sub-pool's own; it asks that before it does anything."""

import pytest

import statehal
from statehal.errors import WrongIdSpace
from statehal.hookspecs import KVWriteRequest
from statehal.spec import Attention
from statehal_hip import statehal_fused_kv_write


def test_it_refuses_full_attention_ids_for_a_window_before_it_looks_for_a_gpu() -> None:
    hal = statehal.bind("cpu", "reference")
    swa = Attention("swa", (1,), 1, 8, "float32", window=8)
    full = Attention("full", (0,), 1, 8, "float32")
    pool = hal.allocate(hal.plan([swa, full], tokens=64, page_size=4))
    for ids, got in {
        pool["full"].space("kernel"): "kernel tokens of 'full'",
        pool["swa"].space("virtual"): "virtual tokens of 'tokens'",
        pool["swa"].space("kernel", "pages"): "kernel pages of 'swa'",
    }.items():
        # on a device that is not there: whatever else the hook asks would raise another error
        request = KVWriteRequest(pool["swa"], "cuda:99", ids)
        with pytest.raises(WrongIdSpace) as caught:
            statehal_fused_kv_write(request)
        text = str(caught.value)
        assert text.startswith(
            "a KV writer of 'swa', which keeps a sliding window of 8, takes kernel tokens of 'swa' in "
        )
        assert f"but was given {got} in pool" in text
        assert text.endswith("would be read or written (fix: pool['swa'].kernel_ids(virtual))")
