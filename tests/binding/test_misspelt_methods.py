"""A method that is misspelt is done by the reference: the log says so, and a helper's name is no misspelling."""

from typing import Any

import pytest

from binding.binding_fakes import Backend, Recorder, allocate, bind
from statehal.binding.answers import misspelt
from statehal.errors import PluginBroken

KV, CONV, MEMORY = "statehal_fused_kv_write", "statehal_causal_conv1d", "statehal_memory_ops"


class Named:
    """Has methods of these names."""

    def __init__(self, *names: str) -> None:
        vars(self).update(dict.fromkeys(names, print))


@pytest.mark.parametrize(
    ("hook", "wrong", "right"),
    [
        (KV, "moov", "move"),
        (KV, "wirte", "write"),
        (KV, "ropewrite", "rope_write"),
        (KV, "write_laten", "write_latent"),
        (CONV, "decod", "decode"),
        (CONV, "verifi", "verify"),
        (CONV, "prefil", "prefill"),
        (CONV, "comit", "commit"),
        (CONV, "copy_slot", "copy_slots"),
        (CONV, "read_states", "read_state"),
        (MEMORY, "translat", "translate"),
        (MEMORY, "alloc_pined", "alloc_pinned"),
        (MEMORY, "zero_page", "zero_pages"),
    ],
)
def test_a_name_that_is_nearly_a_methods(hook: str, wrong: str, right: str) -> None:
    (text,) = misspelt(hook, Named(wrong))
    assert text.startswith(f"Named has {wrong!r}, which is no method of ")
    assert text.endswith(f" (fix: did you mean {right!r}?)")


@pytest.mark.parametrize(
    ("hook", "names"),
    [
        (KV, ["write_rows", "store", "remove", "launch", "views", "_moov", "offsets", "rope"]),
        (KV, ["move", "moov"]),  # which it has, too
        (CONV, ["put_slots", "load_slots", "commit_all", "weights", "decoder_block", "prefill_chunk", "slots"]),
        (MEMORY, ["stream", "zero", "copy", "pinned", "scatter_add"]),
    ],
)
def test_helpers_have_other_names(hook: str, names: list[str]) -> None:
    assert misspelt(hook, Named(*names)) == []


def test_what_cannot_be_called_and_what_asks_when_it_is_read_are_left_alone() -> None:
    class Answer:
        moov = 3

        @property
        def writ(self) -> Any:
            raise OSError("driver lost")

    assert misspelt(KV, Answer()) == []


def test_binding_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    hal = bind({"chap": Backend("chap", kv=Recorder("chap", "write", "moov"))}, "chap")
    pool = allocate(hal)
    kv: Any = hal.kv(pool["kv"])
    hal.kv(pool["kv"])
    assert kv.providers["move"] == "reference"
    text = "plugin 'chap' answered statehal_fused_kv_write: Recorder has 'moov', which is no method of KVWriter"
    assert [record.getMessage() for record in caplog.records] == [f"{text} (fix: did you mean 'move'?)"]


def test_an_answer_of_misspelt_methods_alone_is_refused() -> None:
    hal = bind({"chip": Backend("chip", kv=Recorder("chip", "wriet"))})
    pool = allocate(hal)
    text = r"none of its methods .*; Recorder has 'wriet', which is no method .* \(fix: did you mean 'write'\?\)"
    with pytest.raises(PluginBroken, match=text):
        hal.kv(pool["kv"])
