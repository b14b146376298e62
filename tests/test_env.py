import re

import pytest

from doc_blocks import ROOT
from statehal import env
from statehal.errors import EnvError


def test_everything_is_off_by_default() -> None:
    assert env.backend({}) is None
    assert env.check({}) is False
    assert env.disabled({}) == ()
    assert env.strict({}) is False
    assert env.trace({}) is None
    assert env.unknown({}) == {}


@pytest.mark.parametrize("text", ["1", "true", "YES", "On", " 1 "])
def test_a_switch_is_on(text: str) -> None:
    assert env.check({"STATEHAL_CHECK": text}) is True
    assert env.trace({"STATEHAL_TRACE": text}) == env.TraceSetting("text")


@pytest.mark.parametrize("text", ["0", "false", "NO", "Off", "", "  "])
def test_a_switch_is_off(text: str) -> None:
    assert env.strict({"STATEHAL_STRICT": text}) is False
    assert env.trace({"STATEHAL_TRACE": text}) is None


@pytest.mark.parametrize("text", ["2", "ture", "-1", "cpu"])
def test_a_bad_switch_names_the_variable_the_value_and_the_fix(text: str) -> None:
    expected = re.escape(f"STATEHAL_CHECK={text!r}: expected 1 or 0 (fix: unset it or use 1 or 0)")
    with pytest.raises(EnvError, match=f"^{expected}$"):
        env.check({"STATEHAL_CHECK": text})


def test_values_are_read_when_asked_not_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEHAL_BACKEND", " cpu ")
    assert env.backend() == "cpu"
    monkeypatch.setenv("STATEHAL_BACKEND", "")
    assert env.backend() is None


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ("a",)), ("b,a", ("a", "b")), (" a , a ,", ("a",)), (",", ())],
)
def test_disabled_names_are_a_sorted_list(text: str, names: tuple[str, ...]) -> None:
    assert env.disabled({"STATEHAL_DISABLE": text}) == names


def test_a_trace_goes_to_a_json_file() -> None:
    assert env.trace({"STATEHAL_TRACE": "out-%i.json"}) == env.TraceSetting("chrome", "out-%i.json")


@pytest.mark.parametrize("text", ["ture", "out", "out.txt", "2"])
def test_a_misspelt_trace_switch_becomes_no_file(text: str) -> None:
    with pytest.raises(EnvError, match=r"expected 1, 0 or a path ending in \.json"):
        env.trace({"STATEHAL_TRACE": text})


def test_ranks_do_not_share_a_trace_file() -> None:
    ranks = {"STATEHAL_TRACE": "out.json", "WORLD_SIZE": "4"}
    with pytest.raises(EnvError, match=r"4 ranks would overwrite one file \(fix: put %i"):
        env.trace(ranks)
    assert env.trace({**ranks, "STATEHAL_TRACE": "out-%i.json"}) is not None
    assert env.trace({**ranks, "WORLD_SIZE": "1"}) is not None


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²"])
def test_a_bad_number_is_refused(text: str) -> None:
    with pytest.raises(EnvError, match=r"RANK=.*expected an integer of at least 0"):
        env.RANK.number({"RANK": text})


def test_a_plugin_declares_its_own_variables() -> None:
    isa = env.Variable("STATEHAL_CPU_ISA", "auto", "instruction set of the kernels", ("auto", "avx2", "avx512"))
    environ = {"STATEHAL_CPU_ISA": "avx2"}
    assert isa.choice(environ) == "avx2"
    assert isa.choice({}) == "auto"
    assert env.unknown(environ) == {"STATEHAL_CPU_ISA": ""}
    assert env.unknown(environ, [isa]) == {}
    with pytest.raises(EnvError, match=r"STATEHAL_CPU_ISA='sse': expected one of auto, avx2, avx512 \(fix: "):
        isa.choice({"STATEHAL_CPU_ISA": "sse"})


def test_unknown_variables_come_with_the_nearest_name() -> None:
    environ = {"STATEHAL_TRACES": "1", "STATEHAL_XYZZY": "", "STATEHAL_CHECK": "1", "MY_STATEHAL_CHECK": "1"}
    assert env.unknown(environ) == {"STATEHAL_TRACES": "STATEHAL_TRACE", "STATEHAL_XYZZY": ""}


def test_every_variable_that_the_core_mentions_is_in_the_table() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "core").rglob("*.py")]
    mentioned = {name for text in sources for name in re.findall(r"\bSTATEHAL_[A-Z]+\b(?!_)", text)}
    examples = {"STATEHAL_BAKEND"}
    assert mentioned - examples == {variable.name for variable in env.VARIABLES}
