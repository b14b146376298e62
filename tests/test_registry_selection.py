"""Which backend a device gets: what was named, then a host's hook, then priority; never anything else silently."""

import logging
from typing import Any

import pytest

from plugin_fakes import FakeBackend, discover
from statehal.errors import AmbiguousBackend, ArgumentError, BackendNotReady, EnvError, PluginBroken, UnknownBackend
from statehal.hookspecs import BackendInfo, Probe, hookimpl
from statehal.registry import Registry, device_type

ABSENT = Probe("unavailable", "torch.version.hip is None", "install a ROCm build of torch")


class Chooser:
    """A host's plugin that chooses; it remembers what it was offered."""

    def __init__(self, choice: Any) -> None:
        self.choice = choice
        self.offered: list[tuple[str, list[str]]] = []

    @hookimpl
    def statehal_choose_backend(self, device: str, candidates: tuple[BackendInfo, ...]) -> Any:
        self.offered.append((device, [info.name for info in candidates]))
        if isinstance(self.choice, Exception):
            raise self.choice
        return self.choice


def standard(**extra: object) -> dict[str, object]:
    return {
        "low": FakeBackend("low", priority=0),
        "high": FakeBackend("high", priority=10),
        "gpu": FakeBackend("gpu", types=("cuda", "xpu"), priority=50),
        "hip": FakeBackend("hip", types=("cuda",), priority=90).answering(ABSENT),
        **extra,
    }


@pytest.mark.parametrize(
    ("device", "kind"), [("cpu", "cpu"), ("cuda:0", "cuda"), ("cuda:12", "cuda"), ("privateuseone", "privateuseone")]
)
def test_device_type(device: str, kind: str) -> None:
    assert device_type(device) == kind


@pytest.mark.parametrize("device", ["", "cuda:", "cuda:x", "CUDA", ":0", "cpu 0", "cuda:-1"])
def test_what_is_no_device_is_refused(device: str) -> None:
    with pytest.raises(ArgumentError, match=r"device=.* is not a device \(fix: pass a type"):
        discover(standard()).select(device)


@pytest.mark.parametrize(
    ("device", "expected"), [("cpu", "high"), ("cuda", "gpu"), ("cuda:1", "gpu"), ("xpu:0", "gpu")]
)
def test_the_highest_priority_of_the_ready_that_serve_the_device(device: str, expected: str) -> None:
    selection = discover(standard()).select(device)
    assert (selection.name, selection.device, selection.info.name) == (expected, device, expected)
    assert selection.probe.state == "ready"
    assert selection.reason.startswith("highest priority of the ready: ")


def test_the_reason_names_the_ranking_and_who_was_passed_over() -> None:
    registry = discover(standard())
    assert registry.select("cpu").reason == "highest priority of the ready: 'high' 10, 'low' 0"
    assert registry.select("cuda").reason == (
        "highest priority of the ready: 'gpu' 50; passed over 'hip', not ready: torch.version.hip is None "
        "(fix: install a ROCm build of torch)"
    )


def test_the_reason_names_plugins_refused_at_discovery() -> None:
    registry = discover(standard(boom=ImportError("x")))
    assert registry.select("cpu").reason.endswith("; refused at discovery: 'boom'")


def test_probes_see_the_whole_device_and_only_where_they_serve_its_type() -> None:
    plugins = standard()
    discover(plugins).select("cuda:3")
    asked = {name: plugin.asked for name, plugin in plugins.items() if isinstance(plugin, FakeBackend)}
    assert asked == {"low": [], "high": [], "gpu": ["cuda:3"], "hip": ["cuda:3"]}


def test_the_argument_beats_everything() -> None:
    registry = discover(standard(site=Chooser("high")))
    selection = registry.select("cpu", "low", {"STATEHAL_BACKEND": "high"})
    assert (selection.name, selection.reason) == ("low", "named by the caller")


def test_the_variable_beats_the_hook_and_priority() -> None:
    chooser = Chooser("high")
    selection = discover(standard(site=chooser)).select("cpu", environ={"STATEHAL_BACKEND": "low"})
    assert (selection.name, selection.reason) == ("low", "named by STATEHAL_BACKEND=low")
    assert chooser.offered == []


def test_the_variable_is_read_at_each_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = discover(standard())
    assert registry.select("cpu").name == "high"
    monkeypatch.setenv("STATEHAL_BACKEND", "low")
    assert registry.select("cpu").name == "low"


def test_the_hook_beats_priority_and_sees_the_ready_ones_in_order() -> None:
    chooser = Chooser("low")
    selection = discover(standard(site=chooser)).select("cpu", environ={})
    assert selection.name == "low"
    assert selection.reason == "named by statehal_choose_backend of plugin 'site'"
    assert chooser.offered == [("cpu", ["high", "low"])]


def test_the_hook_may_decline_and_is_not_offered_what_is_not_ready() -> None:
    chooser = Chooser(None)
    assert discover(standard(site=chooser)).select("cuda:0", environ={}).name == "gpu"
    assert chooser.offered == [("cuda:0", ["gpu"])]


def test_the_hook_may_name_a_backend_for_a_device_that_nobody_serves() -> None:
    chooser = Chooser("low")
    assert discover(standard(site=chooser)).select("npu:0", environ={}).name == "low"
    assert chooser.offered == [("npu:0", [])]


def test_of_several_choosers_the_first_that_answers_counts() -> None:
    class First(Chooser):
        @hookimpl(tryfirst=True)
        def statehal_choose_backend(self, device: str, candidates: tuple[BackendInfo, ...]) -> Any:
            return self.choice

    assert discover(standard(a=First("low"), z=Chooser("high"))).select("cpu", environ={}).name == "low"
    assert discover(standard(a=First(None), z=Chooser("high"))).select("cpu", environ={}).name == "high"


def test_a_backend_cannot_choose_itself() -> None:
    class Greedy(FakeBackend):
        @hookimpl
        def statehal_choose_backend(self, device: str, candidates: tuple[BackendInfo, ...]) -> str:
            return "greedy"

    assert discover(standard(greedy=Greedy("greedy", priority=1))).select("cpu", environ={}).name == "high"


@pytest.mark.parametrize(
    ("choice", "error", "text"),
    [
        (
            "hihg",
            UnknownBackend,
            r"^plugin 'site' chose 'hihg': no backend 'hihg' is installed; .*did you mean 'high'\?",
        ),
        ("hip", BackendNotReady, r"^plugin 'site' chose 'hip': backend 'hip' is not ready for 'cpu'"),
        (7, PluginBroken, r"statehal_choose_backend of plugin 'site' returned int: expected a name \(fix: "),
        (ValueError("no"), PluginBroken, r"plugin 'site' failed in statehal_choose_backend: ValueError: no \(fix: "),
    ],
)
def test_a_bad_choice_is_an_error_that_names_the_plugin(choice: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        discover(standard(site=Chooser(choice))).select("cpu", environ={})


def test_a_tie_lists_both_and_the_fix() -> None:
    registry = discover(standard(other=FakeBackend("other", priority=10)))
    with pytest.raises(AmbiguousBackend) as caught:
        registry.select("cpu", environ={})
    assert str(caught.value) == (
        "backends 'high' and 'other' are ready for 'cpu' with priority 10 "
        "(fix: pass backend='high', or set STATEHAL_BACKEND=high or STATEHAL_DISABLE=other)"
    )
    assert registry.select("cpu", "other").name == "other"
    assert registry.select("cpu", environ={"STATEHAL_BACKEND": "high"}).name == "high"


def test_a_tie_of_three_lists_all() -> None:
    plugins = {name: FakeBackend(name) for name in "abc"}
    with pytest.raises(AmbiguousBackend, match="backends 'a' and 'b' and 'c' are ready"):
        discover(plugins).select("cpu", environ={})


def test_a_tie_below_the_top_or_with_one_that_is_not_ready_is_none() -> None:
    extra = {"low2": FakeBackend("low2"), "high2": FakeBackend("high2", priority=10).answering(ABSENT)}
    assert discover(standard(**extra)).select("cpu", environ={}).name == "high"


@pytest.mark.parametrize(
    ("argument", "environ", "start"), [("hip", {}, ""), (None, {"STATEHAL_BACKEND": "hip"}, "STATEHAL_BACKEND=hip: ")]
)
def test_a_named_backend_that_is_not_ready_raises_with_reason_and_fix(
    argument: str | None, environ: dict[str, str], start: str
) -> None:
    text = "backend 'hip' is not ready for 'cuda': torch.version.hip is None (fix: install a ROCm build of torch)"
    with pytest.raises(BackendNotReady) as caught:
        discover(standard()).select("cuda", argument, environ)
    assert str(caught.value) == start + text


def test_a_named_backend_may_run_on_a_device_it_does_not_claim() -> None:
    assert discover(standard()).select("cuda", "low").name == "low"


def test_a_named_backend_that_failed_to_load_raises_with_its_cause() -> None:
    cause = ImportError("libvendor.so")
    registry = discover(standard(boom=cause))
    for _ in range(2):
        with pytest.raises(
            PluginBroken, match=r"^plugin 'boom' of dist-boom 1\.0 .*ImportError: libvendor\.so"
        ) as caught:
            registry.select("cpu", "boom")
        assert caught.value.__cause__ is cause


def test_a_named_backend_that_is_disabled_says_so() -> None:
    registry = discover(standard(), STATEHAL_DISABLE="high")
    assert registry.select("cpu", environ={}).name == "low"
    with pytest.raises(BackendNotReady, match=r"backend 'high' is kept out by STATEHAL_DISABLE \(fix: take it out"):
        registry.select("cpu", "high")


def test_an_unknown_name_lists_what_is_installed_and_the_nearest() -> None:
    registry = discover(standard())
    with pytest.raises(UnknownBackend) as caught:
        registry.select("cpu", "hgih")
    assert str(caught.value) == (
        "no backend 'hgih' is installed; installed are 'gpu', 'high', 'hip', 'low' (fix: did you mean 'high'?)"
    )
    text = (
        r"^STATEHAL_BACKEND=zzz: no backend 'zzz' .*\(fix: name one of these, or install a distribution with the entry "
        r"point 'zzz' in 'statehal\.backends'; after a change of its pyproject\.toml, install it again\)$"
    )
    with pytest.raises(UnknownBackend, match=text):
        registry.select("cpu", environ={"STATEHAL_BACKEND": "zzz"})


def test_an_overriding_plugin_is_no_backend() -> None:
    with pytest.raises(UnknownBackend, match=r"plugin 'site' is no backend, it overrides .*\(fix: name one of 'gpu'"):
        discover(standard(site=Chooser(None))).select("cpu", "site")


def test_nothing_ready_lists_every_reason() -> None:
    broken = FakeBackend("bad", types=("cuda",)).answering(OSError("driver lost"))
    registry = discover({"hip": standard()["hip"], "bad": broken, "boom": ImportError("x")})
    with pytest.raises(BackendNotReady) as caught:
        registry.select("cuda:0", environ={})
    assert str(caught.value) == (
        "no backend is ready for 'cuda:0': 'hip' is not ready: torch.version.hip is None (fix: install a ROCm build of "
        "torch); 'bad' is broken: its probe raised OSError: driver lost (fix: repair or uninstall dist-bad, or set "
        "STATEHAL_DISABLE=bad); refused at discovery: 'boom'"
    )


@pytest.mark.parametrize("plugins", [{}, {"low": FakeBackend("low")}], ids=len)
def test_no_backend_for_the_type_of_device(plugins: dict[str, object]) -> None:
    names = ", ".join(map(repr, plugins)) or "none"
    with pytest.raises(BackendNotReady, match=f"no installed backend serves 'npu' devices; installed are {names} "):
        discover(plugins).select("npu:0", environ={})


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(1), ImportError("libfoo.so")], ids=repr)
def test_a_probe_that_raises_is_broken_with_its_traceback_and_no_abort(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    registry = discover(standard(bad=FakeBackend("bad", priority=99).answering(error)))
    probe = registry.probe("bad", "cpu")
    assert probe.state == "broken"
    assert probe.reason.startswith(f"its probe raised {type(error).__name__}: {error}")
    assert "plugin_fakes.py" in probe.details["traceback"]
    with caplog.at_level(logging.WARNING, "statehal"):
        selection = registry.select("cpu", environ={})
    assert selection.name == "high"
    assert f"passed over 'bad', broken: its probe raised {type(error).__name__}" in selection.reason
    assert any("backend 'bad' is broken on 'cpu'" in message for message in caplog.messages)
    with pytest.raises(BackendNotReady, match="backend 'bad' is broken for 'cpu': its probe raised"):
        registry.select("cpu", "bad")


def test_a_probe_that_answers_nothing_is_broken() -> None:
    probe = discover({"odd": FakeBackend("odd").answering(None)}).probe("odd", "cpu")
    assert (probe.state, probe.reason) == ("broken", "its probe returned NoneType instead of a Probe")


def test_bad_variables_raise() -> None:
    with pytest.raises(EnvError, match="STATEHAL_STRICT='maybe'"):
        Registry.discover([], {"STATEHAL_STRICT": "maybe"})


def test_candidates_are_those_that_were_probed() -> None:
    selection = discover(standard()).select("cuda", environ={})
    assert [(c.info.name, c.probe.state) for c in selection.candidates] == [("hip", "unavailable"), ("gpu", "ready")]
    assert [c.info.name for c in discover(standard()).select("cuda", "gpu").candidates] == ["gpu"]
