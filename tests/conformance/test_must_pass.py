"""What must pass is frozen by contract version: no name goes, and no check without tags is left off."""

from pathlib import Path

import pytest

from conformance.kit_fakes import fake
from statehal.testing import CHECKS
from statehal.testing.must_pass import COMMAND, add, current, lists, problems, untagged


def test_the_frozen_lists_are_those_of_the_checks() -> None:
    assert problems(CHECKS.values(), lists()) == []


def test_a_name_that_is_gone_is_told() -> None:
    (text,) = problems([fake(name="a/b")], {"0.0": ["a/gone"], current(): ["a/b"]})
    assert text.startswith("'a/gone' must pass in contract 0.0 and is no check any more (fix: bring it back")


def test_a_check_that_is_missing_from_the_list_is_told_with_the_command() -> None:
    checks = [fake(name="a/b"), fake(name="a/c", needs={"kv.write"}), fake(name="a/tagged", needs={"trees"})]
    assert problems(checks, {current(): ["a/b"]}) == [f"a/c: not on the list of contract {current()} (fix: {COMMAND})"]


@pytest.mark.parametrize(
    ("need", "frozen"),
    [
        ("kv.write", True),
        ("store:int8", False),
        ("store:int8 or store:float16", True),
        ("kv.graph_capturable", False),
        ("kv.graph_capturable or memory.graph_capturable", False),
    ],
)
def test_a_choice_among_tags_is_no_capability_of_its_own(need: str, frozen: bool) -> None:
    assert untagged([fake(name="a/b", needs={"kv.write", need})]) == ({"a/b"} if frozen else set())


def test_a_check_that_comes_to_need_a_tag_is_told() -> None:
    (text,) = problems([fake(name="a/b", needs={"trees"})], {current(): ["a/b"]})
    assert text.startswith(f"'a/b' must pass in contract {current()} and needs a capability tag now")


@pytest.mark.parametrize("before", [None, '{"0.0": ["a/old"]}'])
def test_the_command_adds_and_takes_nothing_away(before: str | None, tmp_path: Path) -> None:
    file = tmp_path / "must_pass.json"
    if before:
        file.write_text(before)
    assert add([fake(name="a/b")], file) == ["a/b"]
    assert add([fake(name="a/c"), fake(name="a/tagged", needs={"trees"})], file) == ["a/c"]
    expected = {"0.0": ["a/old"]} if before else {}
    assert lists(file) == {**expected, current(): ["a/b", "a/c"]}
