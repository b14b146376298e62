"""No plugin takes down another: every way in which one can be wrong is recorded, named and comes with its fix."""

import logging
import random
import re
from typing import Any

import pytest

from plugin_fakes import FakeBackend, FakeEntryPoint, discover, point
from statehal.errors import BackendConflict, ContractMismatch, PluginBroken
from statehal.hookspecs import CONTRACT, HOOKS, BackendInfo, Probe, hookimpl
from statehal.registry import Registry, validation

ERRORS = [
    ImportError("no module named vendor"),
    SystemExit(1),
    SystemExit("bye"),
    SystemExit(),
    RuntimeError("driver\nlost"),
    AssertionError(),
    SyntaxError("bad syntax"),
    RecursionError("deep"),
    MemoryError(),
    OSError(2, "no such library"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_plugin_that_raises_at_import_leaves_the_others(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "statehal"):
        registry = discover({"a": FakeBackend("a"), "boom": error, "z": FakeBackend("z", priority=1)})
    assert list(registry.backends) == ["a", "z"]
    assert list(registry.failures) == ["boom"]
    failure = registry.failures["boom"]
    assert failure.cause is error
    assert "plugin_fakes.py" in failure.traceback
    assert type(error).__name__ in failure.traceback
    text = str(failure)
    assert text.startswith(f"plugin 'boom' of dist-boom 1.0 (boom_module): {type(error).__name__}")
    assert text.endswith("(fix: repair or uninstall dist-boom, or set STATEHAL_DISABLE=boom)")
    assert "\n" not in text
    assert caplog.messages == [text]
    assert registry.select("cpu").name == "z"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_what_is_no_plugins_fault_is_not_swallowed(error: BaseException) -> None:
    with pytest.raises(type(error)):
        discover({"a": error})


class NeedsAnArgument(FakeBackend):
    pass


class Unhashable(FakeBackend):
    __hash__ = None  # type: ignore[assignment]


class WrongArgument(FakeBackend):
    @hookimpl
    def statehal_memory_ops(self, demand: object) -> None: ...


class Unmarked(FakeBackend):
    def statehal_memory_ops(self, request: object) -> None: ...


class Twice(FakeBackend):
    @hookimpl
    def statehal_memory_ops(self, request: object) -> None: ...

    @hookimpl(specname="statehal_memory_ops")
    def again(self, request: object) -> None: ...


class NotAGenerator(FakeBackend):
    @hookimpl(wrapper=True)
    def statehal_memory_ops(self, request: object) -> None: ...


class NoProbe:
    @hookimpl
    def statehal_backend_info(self) -> BackendInfo:
        return BackendInfo("bad", frozenset({"cpu"}))


class NoHook:
    pass


class BadInfo(FakeBackend):
    answer_info: object = None

    @hookimpl
    def statehal_backend_info(self) -> Any:
        if isinstance(self.answer_info, BaseException):
            raise self.answer_info
        return self.answer_info


def bad_info(answer: object) -> BadInfo:
    plugin = BadInfo("bad")
    plugin.answer_info = answer
    return plugin


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (NeedsAnArgument, r"TypeError: .*missing 1 required positional argument: 'name'"),
        (Unhashable("bad"), r"TypeError: unhashable type: 'Unhashable'"),
        (None, r"TypeError: bad_module is None"),
        (WrongArgument("bad"), r"PluginValidationError: .*Argument\(s\) \{'demand'\} are declared in the hookimpl"),
        (NotAGenerator("bad"), r"PluginValidationError: .*function is not a generator function"),
        (Unmarked("bad"), r"statehal_memory_ops is not marked as a hook \(fix: decorate it with statehal\.hookspecs"),
        (Twice("bad"), r"it implements statehal_memory_ops twice"),
        (NoProbe(), r"it is a backend without statehal_probe \(fix: implement statehal_probe\)"),
        (NoHook(), r"it implements no hook"),
        (bad_info(None), r"statehal_backend_info returned NoneType \(fix: return a statehal\.hookspecs\.BackendInfo\)"),
        (bad_info({"name": "bad"}), r"statehal_backend_info returned dict"),
        (bad_info(ValueError("no info")), r"ValueError: no info"),
        (bad_info(SystemExit(3)), r"SystemExit: 3"),
        (FakeBackend("other"), r"it calls itself 'other' and its entry point 'bad'"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
def test_a_plugin_that_breaks_the_contract_is_refused(plugin: object, text: str) -> None:
    registry = discover({"a": FakeBackend("a"), "bad": plugin, "z": FakeBackend("z", priority=1)})
    assert list(registry.backends) == ["a", "z"]
    assert list(registry.failures) == ["bad"]
    assert not registry.overrides
    with pytest.raises(PluginBroken, match=text):
        registry.select("cpu", "bad")
    # nothing of it is left behind in the others' calls
    assert [provider.name for provider in registry.providers("statehal_memory_ops", "z")] == []


@pytest.mark.parametrize("value", ["dist-bad", "bad:", "", "src/bad.py", "bad:plugin()"])
def test_an_entry_point_that_names_no_module_is_told_before_anything_is_imported(value: str) -> None:
    bad = point("bad", FakeBackend("bad"))
    bad.value = value
    registry = Registry.discover([bad, point("z", FakeBackend("z"))], {})
    assert (bad.loads, list(registry.backends)) == (0, ["z"])
    text = (
        f"plugin 'bad' of dist-bad 1.0 ({value}): the value of its entry point, {value!r}, is not the name of a module "
        "(fix: write 'module' or 'module:attribute' into its pyproject.toml, and install it again)"
    )
    with pytest.raises(PluginBroken, match=re.escape(text)):
        registry.select("cpu", "bad")


def test_who_asks_for_a_plugin_that_fails_to_load_is_sent_to_the_traceback() -> None:
    registry = discover({"bad": ImportError("libvendor.so"), "silent": NoHook()})
    text = (
        "plugin 'bad' of dist-bad 1.0 (bad_module): ImportError: libvendor.so (fix: repair or uninstall dist-bad, or "
        "set STATEHAL_DISABLE=bad; statehal doctor prints the traceback)"
    )
    with pytest.raises(PluginBroken, match=re.escape(text)):
        registry.select("cpu", "bad")
    with pytest.raises(PluginBroken, match=r"it implements no hook \(fix: [^;]*\)$"):  # where there is a traceback
        registry.select("cpu", "silent")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_misspelt_hook_is_found_and_the_right_name_proposed(hook: str) -> None:
    misspelt = hook[:-2] + hook[-1] + hook[-2] + "x"

    class Misspelt(FakeBackend):
        pass

    @hookimpl
    def function(self: object) -> None: ...

    setattr(Misspelt, misspelt, function)
    registry = discover({"a": FakeBackend("a"), "bad": Misspelt("bad"), "worse": Misspelt("worse")})
    assert list(registry.backends) == ["a"]
    assert sorted(registry.failures) == ["bad", "worse"]
    assert str(registry.failures["bad"]) == (
        f"plugin 'bad' of dist-bad 1.0 (bad_module): it implements the unknown hook {misspelt!r} "
        f"(fix: did you mean {hook!r}?)"
    )


def test_an_optional_hook_of_a_newer_contract_is_no_mistake() -> None:
    class Newer(FakeBackend):
        @hookimpl(optionalhook=True)
        def statehal_teleport(self) -> None: ...

    assert list(discover({"new": Newer("new")}).backends) == ["new"]


@pytest.mark.parametrize(
    ("contract", "fix"),
    [
        ((0, 9), "upgrade the plugin"),
        ((1, 0), ""),
        ((1, 2), ""),
        ((1, 3), "upgrade statehal, or install an older version of the plugin"),
        ((2, 0), "upgrade statehal, or install an older version of the plugin"),
        ((2, 9), "upgrade statehal, or install an older version of the plugin"),
    ],
)
def test_contract_versions(contract: tuple[int, int], fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "CONTRACT", (1, 2))
    registry = discover({"p": FakeBackend("p", contract=contract), "ok": FakeBackend("ok", contract=(1, 2))})
    assert "ok" in registry.backends
    assert ("p" in registry.backends) is (fix == "")
    if fix:
        text = f"it is written for contract {contract[0]}.{contract[1]}, this statehal fulfils 1.2 (fix: {fix})"
        with pytest.raises(ContractMismatch) as caught:
            registry.select("cpu", "p")
        assert str(caught.value) == f"plugin 'p' of dist-p 1.0 (p_module): {text}"


def test_a_plugin_of_todays_contract_is_accepted() -> None:
    assert list(discover({"p": FakeBackend("p", contract=CONTRACT)}).backends) == ["p"]


def conflicting() -> list[FakeEntryPoint]:
    return [
        point("x", FakeBackend("x"), dist="one", version="1.0", value="one.plugin"),
        point("y", FakeBackend("y")),
        point("x", FakeBackend("x"), dist="two", version="2.0", value="two.plugin"),
    ]


def test_two_distributions_that_claim_one_name_are_both_named_and_not_loaded() -> None:
    points = conflicting()
    registry = Registry.discover(points, {})
    assert [entry.loads for entry in points] == [0, 1, 0]
    assert list(registry.backends) == ["y"]
    assert list(registry.conflicts) == ["x"]
    text = (
        "the name 'x' is claimed by one 1.0 (one.plugin) and by two 2.0 (two.plugin) "
        "(fix: uninstall all but one of one, two, or set STATEHAL_DISABLE=x to do without)"
    )
    assert str(registry.conflicts["x"]) == text
    with pytest.raises(BackendConflict) as caught:
        registry.select("cpu", "x")
    assert str(caught.value) == text


@pytest.mark.parametrize("second", ["some-dist", "some_dist", "Some.Dist"])
def test_one_distribution_listed_twice_is_no_conflict(second: str) -> None:
    points = [point("x", FakeBackend("x"), dist="some-dist"), point("x", FakeBackend("x"), dist=second)]
    registry = Registry.discover(points, {})
    assert [entry.loads for entry in points] == [1, 0]
    assert list(registry.backends) == ["x"]
    assert not registry.conflicts


def test_one_object_under_two_names_is_refused_once() -> None:
    plugin = FakeBackend("a")
    registry = discover({"a": plugin, "b": plugin})
    assert list(registry.backends) == ["a"]
    assert list(registry.failures) == ["b"]


def test_a_disabled_plugin_is_not_even_imported() -> None:
    points = [point("bad", SystemExit(1)), point("good", FakeBackend("good")), *conflicting()]
    registry = Registry.discover(points, {"STATEHAL_DISABLE": "bad,x,missing"})
    assert points[0].loads == 0
    assert list(registry.backends) == ["good", "y"]
    assert not registry.failures
    assert not registry.conflicts
    assert dict(registry.disabled) == {"bad": True, "missing": False, "x": True}


def test_a_class_is_instantiated() -> None:
    class Ready(FakeBackend):
        def __init__(self) -> None:
            super().__init__("made")

    assert list(discover({"made": Ready}).backends) == ["made"]


def test_a_plugin_without_backend_info_overrides() -> None:
    class Site:
        @hookimpl
        def statehal_memory_ops(self, request: object) -> object:
            return None

    registry = discover({"site": Site(), "b": FakeBackend("b")})
    assert list(registry.overrides) == ["site"]
    assert list(registry.backends) == ["b"]
    assert registry.overrides["site"].source.distribution == "dist-site"


@pytest.mark.parametrize("error", [ImportError("gone"), RuntimeError("x")], ids=repr)
def test_strict_raises_what_the_plugin_raised_and_says_whose_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        discover({"boom": error}, STATEHAL_STRICT="1")
    assert caught.value is error
    assert any("plugin 'boom' of dist-boom 1.0" in note for note in error.__notes__)


def test_strict_does_not_end_the_process_without_a_word() -> None:
    with pytest.raises(PluginBroken, match=r"plugin 'boom' .*: SystemExit: 1 \(fix: ") as caught:
        discover({"boom": SystemExit(1)}, STATEHAL_STRICT="1")
    assert isinstance(caught.value.__cause__, SystemExit)


def test_strict_raises_refusals_too() -> None:
    with pytest.raises(BackendConflict, match="the name 'x' is claimed by one"):
        Registry.discover(conflicting(), {"STATEHAL_STRICT": "1"})
    with pytest.raises(ContractMismatch, match=r"written for contract 9\.9"):
        discover({"new": FakeBackend("new", contract=(9, 9))}, STATEHAL_STRICT="1")


def test_the_order_of_the_scan_changes_nothing() -> None:
    def everything() -> list[FakeEntryPoint]:
        return [
            *conflicting(),
            point("a", FakeBackend("a", priority=3)),
            point("boom", ImportError("gone")),
            point("exit", SystemExit(1)),
            point("z", FakeBackend("z", contract=(9, 0))),
        ]

    seen = set()
    for seed in range(20):
        points = everything()
        random.Random(seed).shuffle(points)
        registry = Registry.discover(points, {})
        conflicts = tuple(map(str, registry.conflicts.values()))
        failures = tuple(map(str, registry.failures.values()))
        seen.add((tuple(registry.backends), failures, conflicts, registry.select("cpu").reason))
    assert len(seen) == 1


def test_a_wrapper_that_fails_around_backend_info_blames_the_backend_with_the_wrappers_traceback() -> None:
    class Wrapper:
        @hookimpl(wrapper=True)
        def statehal_backend_info(self) -> Any:
            yield
            raise ValueError("wrapper bug")

    registry = discover({"b": FakeBackend("b"), "w": Wrapper()})
    assert list(registry.overrides) == ["w"]
    assert "wrapper bug" in registry.failures["b"].traceback


def test_probe_and_info_refuse_what_would_be_misread() -> None:
    with pytest.raises(ValueError, match=r"device_types='gpu' is one string \(fix: pass a set of strings: \{'gpu'\}\)"):
        BackendInfo("x", "gpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"contract=\(1,\): expected \(major, minor\)"):
        BackendInfo("x", frozenset(), contract=(1,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"state='absent': expected 'ready', 'unavailable' or 'broken'"):
        Probe("absent")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"state='unavailable' gives no reason"):
        Probe("unavailable")
