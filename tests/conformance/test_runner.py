"""The runner: what a check's outcome becomes, given what a backend claims and declares."""

from typing import Any

import pytest

import statehal.registry
from conformance.kit_fakes import Number, failing, fake, passing, small
from conformance.mutant import MutantBackend, target
from plugin_fakes import discover, point
from statehal.binding.merge import FLAGS
from statehal.errors import ArgumentError, BackendNotReady, PluginBroken, UnknownBackend, Unsupported
from statehal.hookspecs import CAPABILITIES, IDS64, BackendInfo, Probe, hookimpl
from statehal.testing import CHECKS, Check, Target, run, run_check, select
from statehal.testing.runner import judge

REFERENCE = Target("reference")


def declaring(**info: Any) -> Target:
    """The reference under another name, which says this about itself."""
    return target(MutantBackend(info=info))


def test_a_failure_begins_with_the_statement_and_ends_with_the_smallest_inputs() -> None:
    result = run_check(fake(small), REFERENCE)
    assert (result.status, result.by) == ("failed", "assertion")
    assert result.message == "fake/check: Numbers are small.\n5 is not\nwith Number(value=5)"


def test_a_check_without_inputs_is_run_once() -> None:
    result = run_check(fake(failing, drawn=False), REFERENCE)
    assert result.message == "fake/check: Numbers are small.\nthe evidence"
    assert run_check(fake(passing, drawn=False), REFERENCE).status == "passed"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), NotImplementedError()], ids=repr)
@pytest.mark.parametrize("drawn", [True, False])
def test_an_exception_is_a_failure_and_no_assertion(error: BaseException, drawn: bool) -> None:
    def raising(*_: object) -> None:
        raise error

    result = run_check(fake(raising, drawn=drawn), REFERENCE)
    assert (result.status, result.by) == ("failed", type(error).__name__)
    first, second = result.message.splitlines()[:2]
    assert first == "fake/check: Numbers are small."
    assert second == f"{type(error).__name__}: {error}".removesuffix(": ")


def test_a_failure_that_does_not_come_again_is_told() -> None:
    calls = []

    def third(target: object, case: Number) -> None:
        calls.append(case)
        assert len(calls) != 3, "the third call"

    result = run_check(fake(third), REFERENCE)
    assert (result.status, result.by) == ("failed", "assertion")
    assert "the third call" in result.message
    assert result.message.endswith("not every time: the same inputs passed when they were given again")


def test_of_two_failures_one_is_told() -> None:
    def either(target: object, case: Number) -> None:
        assert case.value < 50, "big"
        if case.value == 3:
            raise ValueError("three")

    assert run_check(fake(either), REFERENCE).by in ("assertion", "ValueError")


def test_a_feature_is_due_where_its_tag_is_claimed() -> None:
    due = fake(features={"even", "negative if trees"})
    assert run_check(due, REFERENCE).by == "coverage"
    less = target(MutantBackend(info={"capabilities": CAPABILITIES - {IDS64, "trees"}}))
    assert run_check(due, less).status == "passed"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_backend_is_asked_in_the_dtypes_that_it_claims(dtype: str) -> None:
    """One that answers for no other dtype offers its methods all the same."""

    def only(made: Any, request: Any) -> Any:
        return made if request.subpool.spec.dtype == dtype else None

    tags = {f"store:{dtype}", f"window:{dtype}"}
    judged = target(MutantBackend(kv=only, conv=only, info={"capabilities": tags}))
    assert {"kv.write", "conv.decode", "conv.graph_capturable"} <= judged.offers
    for name in (
        "kv_write/rows_lie_at_their_addresses",
        "conv_decode/outputs_are_the_convolution",
        "discovery/methods_have_the_signatures_of_the_contract",
        "discovery/it_has_the_methods_that_its_capabilities_imply",
    ):
        assert judge(CHECKS[name], judged, profile_name="dev").status == "passed"


@pytest.mark.parametrize(("profile", "status"), [("dev", "passed"), ("ci", "failed"), ("thorough", "failed")])
def test_a_feature_that_was_never_drawn_fails(profile: Any, status: str) -> None:
    result = run_check(fake(features={"even", "negative"}), REFERENCE, profile_name=profile)
    assert result.status == status
    if status == "failed":
        assert result.by == "coverage"
        text = f"no example of {result.examples} had: negative"
        assert result.message == f"fake/check: Numbers are small.\n{text}"


def test_features_and_examples_are_counted_and_the_same_at_every_run() -> None:
    one, two = (run_check(fake(features={"even", "odd"}), REFERENCE) for _ in range(2))
    assert one.examples == sum(one.features.values()) == 100
    assert one.features == two.features


@pytest.mark.parametrize("where", ["check", "inputs"])
def test_an_interruption_ends_the_run(where: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(REFERENCE, [fake(interrupted, drawn=where == "inputs")])


def test_an_unexpected_pass_fails() -> None:
    result = judge(fake(passing), declaring(expected_failures={"fake/check": "bug 7"}))
    assert (result.status, result.by, result.reason) == ("failed", "unexpected pass", "bug 7")
    assert result.message == (
        "fake/check: Numbers are small.\nit passed, and 'mutant' declares that it fails: bug 7 "
        "(fix: take it out of expected_failures)"
    )


@pytest.mark.parametrize("pattern", ["fake/check", "fake/*"])
def test_an_expected_failure_is_run_and_keeps_its_evidence(pattern: str) -> None:
    result = judge(fake(failing), declaring(expected_failures={pattern: "bug 7"}))
    assert (result.status, result.reason, result.by) == ("xfailed", "bug 7", "assertion")
    assert "the evidence" in result.message


def test_what_is_unsupported_is_not_run() -> None:
    def never(*_: object) -> None:
        pytest.fail("was run")

    result = judge(fake(never), declaring(unsupported={"fake/*": "no such unit"}))
    assert (result.status, result.reason, result.examples) == ("skipped", "no such unit", 0)


def test_what_is_not_claimed_is_filtered_with_who_does_it() -> None:
    class Bare:
        @hookimpl
        def statehal_backend_info(self) -> BackendInfo:
            return BackendInfo("bare", frozenset({"cpu"}))

        @hookimpl
        def statehal_probe(self, device: str) -> Probe:
            return Probe("ready")

    import statehal.reference as reference

    bare = Target("bare", "cpu", discover({"bare": Bare(), "reference": reference}))
    result = judge(fake(failing, needs={"kv.write", "trees"}), bare)
    assert (result.status, result.reason) == ("filtered", "kv.write is done by reference; trees is not claimed")
    report = run(bare, [fake(failing, needs={"kv.write"})])
    assert not report.ok
    text = (
        "no check was run: of 1, 1 were filtered and 0 skipped; kv.write is done by reference, because it has no "
        "statehal_fused_kv_write (fix: provide these, and claim what the backend does in capabilities)"
    )
    assert report.faults == (text,)


def faults(backend: MutantBackend, *needs: str) -> str:
    """The fault of a run of nothing, without its first part and its fix."""
    (fault,) = run(target(backend), [fake(name=f"a/{n}", needs={need}) for n, need in enumerate(needs)]).faults
    return fault.partition("; ")[2].partition(" (fix: provide these")[0]


def test_a_run_of_nothing_says_what_its_checks_lack() -> None:
    def wirte(made: Any, request: Any) -> Any:
        made.wirte, made.write = made.write, None
        return made

    assert faults(MutantBackend(kv=lambda made, request: None), "kv.write", "kv.write_latent") == (
        "kv.write is done by reference, because its statehal_fused_kv_write answered None for an Attention sub-pool of "
        "bfloat16 in the layout of 'mutant'; kv.write_latent is done by reference, because its "
        "statehal_fused_kv_write answered None for a Latent sub-pool of bfloat16 in the layout of 'mutant'"
    )
    assert faults(MutantBackend(kv=wirte), "kv.write") == (
        "kv.write is done by reference, because its statehal_fused_kv_write answered a ReferenceKVWriter for an "
        "Attention sub-pool of bfloat16 in the layout of 'mutant', which has no write; ReferenceKVWriter has 'wirte', "
        "which is no method of KVWriter (fix: did you mean 'write'?)"
    )
    assert faults(MutantBackend(conv_layout=lambda made, request: None), "layout.slots") == (
        "layout.slots is done by reference, because its statehal_conv_state_layout answered None for a ConvRecurrent "
        "sub-pool of bfloat16"
    )
    nothing = MutantBackend(memory=lambda made, request: None, info={"capabilities": {"store:bfloat16"}})
    assert faults(nothing, "memory.gather", "trees", "store:int8 or store:float16", "snapshots", "tracking") == (
        "memory.gather is done by reference, because its statehal_memory_ops answered None; trees is not claimed; "
        "store:int8 or store:float16 is not claimed; and 2 more needs"
    )


def test_a_run_where_all_is_skipped_fails() -> None:
    report = run(declaring(unsupported={"*": "nothing works"}, capabilities=CAPABILITIES))
    assert not report.ok
    assert set(report.count()) == {"skipped"}
    assert report.faults[0].startswith(f"no check was run: of {len(CHECKS)}, 0 were filtered and {len(CHECKS)} skipped")


@pytest.mark.parametrize("name", ["unsupported", "expected_failures"])
def test_a_deviation_that_matches_no_check_is_a_fault_of_a_whole_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = declaring(**{name: {"kv_wriet/*": "a typo"}})
    one = next(iter(CHECKS.values()))
    monkeypatch.setattr("statehal.testing.runner.CHECKS", {one.name: one})
    report = run(stray, profile_name="dev")
    assert (report.ok, report.count()) == (False, {"passed": 1})
    text = f"'mutant' declares 'kv_wriet/*' in {name} (a typo), which matches no check (fix: remove it)"
    assert report.faults == (text,)
    assert run(stray, profile_name="dev", only=one.name).faults == ()


def test_a_fault_of_the_plugin_itself_is_a_fault_of_the_run() -> None:
    def broken(made: Any, request: Any) -> Any:
        raise OSError("driver lost")

    report = run(target(MutantBackend(kv=broken)), [fake()])
    assert (report.ok, report.results) == (False, ())
    (fault,) = report.faults
    assert fault.startswith("plugin 'mutant' failed in statehal_fused_kv_write: OSError: driver lost")


def test_an_unknown_backend_and_one_that_is_not_ready_are_errors() -> None:
    with pytest.raises(UnknownBackend, match="no backend 'nobody' is installed"):
        run(Target("nobody"))
    with pytest.raises(BackendNotReady, match=r"torch cannot use .* \(fix: install a build of torch"):
        run(Target("reference", "nodevice"))


def test_an_unknown_capability_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"\['treees'\]: expected some of .*\(fix: did you mean 'trees'\?\)$"):
        BackendInfo("x", frozenset({"cpu"}), capabilities=frozenset({"treees"}))
    with pytest.raises(ArgumentError, match=r"\(fix: take 'coffee' out; did you mean 'store:int8'\?\)$"):
        BackendInfo("x", frozenset({"cpu"}), capabilities=frozenset({"coffee", "store:int9"}))


def test_every_check_needs_methods_and_tags_that_exist() -> None:
    flags = {f"{label}.{flag}" for label in ("kv", "conv", "memory") for flag in FLAGS}
    known = {*REFERENCE.providers, *CAPABILITIES, *flags}
    needed = {one for check in CHECKS.values() for need in check.needs for one in need.split(" or ")}
    assert needed - known == set()


def test_selection_by_topic_and_by_pattern() -> None:
    checks = [fake(name=name) for name in ("kv/a", "kv/b", "kv_more/a", "conv/a")]

    def chosen(only: str | None) -> list[str]:
        return [check.name for check in select(checks, only)]

    assert chosen("kv") == ["kv/a", "kv/b"]
    assert chosen("kv*") == ["kv/a", "kv/b", "kv_more/a"]
    assert chosen("*/a") == ["kv/a", "kv_more/a", "conv/a"]
    assert len(chosen(None)) == 4
    with pytest.raises(ArgumentError, match=r"no check matches 'kw' \(fix: a topic of kv, kv_more, conv, or a pattern"):
        chosen("kw")
    with pytest.raises(ArgumentError, match=r"\(fix: did you mean 'kv_more'\? a topic of kv, kv_more, conv, or"):
        chosen("kvmore")


def test_unsupported_in_a_check_is_told_to_the_author() -> None:
    def refusing(*_: object) -> None:
        raise Unsupported("mutant does not offer snapshots (fix: use another backend)")

    result = run_check(fake(refusing, drawn=False, needs={"conv.prefill", "snapshots"}), REFERENCE)
    assert result.by == "Unsupported"
    fix = "take what it does not serve out of its capabilities and methods"
    assert result.message.splitlines()[-1] == f"it claims 'conv.prefill' and 'snapshots' (fix: {fix})"


def test_who_is_judged_is_refused_once(caplog: pytest.LogCaptureFixture) -> None:
    """The error says why; the log speaks of the others."""
    plugins = {"mine": ImportError("no driver"), "other": ImportError("no library")}
    for judged, logged in (("mine", ["other"]), ("other", ["mine"])):
        statehal.registry.reset()
        caplog.clear()
        with pytest.MonkeyPatch.context() as patch:
            points = [point(name, plugin) for name, plugin in plugins.items()]
            patch.setattr("statehal.registry.registry.installed", lambda points=points: (points, []))
            made = Target(judged)
        assert [record.args[0].name for record in caplog.records] == logged  # type: ignore[union-attr, index]
        with pytest.raises(PluginBroken, match=r"\(fix: .*; statehal doctor prints the traceback\)$"):
            run(made)
    statehal.registry.reset()


def test_progress_is_told_after_each() -> None:
    told: list[tuple[str, str]] = []

    def progress(check: Check, result: Any) -> None:
        told.append((check.name, result.status))

    run(REFERENCE, [fake(passing, name="a/a"), fake(failing, name="a/b")], progress=progress)
    assert told == [("a/a", "passed"), ("a/b", "failed")]
