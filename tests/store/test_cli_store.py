"""``statehal store``: what it prints, where, and its exit status."""

import json
import os
import sys
from pathlib import Path

import pytest

from statehal import cli
from statehal.portability.store.encoding import canonical, digest
from store.scene import files, filled, flipped, path_of, rewritten, scene

MADE = scene(object_tokens=16, head_groups=1)
BLOCK = 2 * 4992


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    filled(folder, MADE, 3).gc()
    for number, block in enumerate(MADE.blocks(3)):
        for ref in block:
            os.utime(path_of(folder, ref), (0, 1_000_000_000 + 60 * number))
    return folder


def test_ls_lists_blocks_and_the_last_used_first(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "ls", str(root), "--limit", "2"]) == 0
    keys = [block[0].key[:16] for block in MADE.blocks(3)]
    digest = MADE.namespace.digest[:12]
    assert capsys.readouterr().out.splitlines() == [
        "namespace     key               parts  bytes  last use",
        f"{digest}  {keys[2]}      2  9,984  2001-09-09T01:48:40+00:00",
        f"{digest}  {keys[1]}      2  9,984  2001-09-09T01:47:40+00:00",
        "and 1 more",
    ]


def test_ls_as_json_has_every_part(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "ls", str(root), "--namespace", MADE.namespace.digest[:8], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["not_shown"] == 0
    assert found["blocks"][2] == {
        "namespace": MADE.namespace.digest,
        "key": MADE.block(0)[0].key,
        "bytes": BLOCK,
        "used": "2001-09-09T01:46:40+00:00",
        "parts": {"layers0-1.heads0of1": 4992, "layers1-2.heads0of1": 4992},
    }


def test_stat_says_what_there_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "temporary" / "dead").write_bytes(b"12345")
    assert cli.main(["store", "stat", str(root)]) == 0
    row = f"{MADE.namespace.digest[:12]}  tiny   Attention, 2 layers, bfloat16       3      6  29,952  "
    assert capsys.readouterr().out.splitlines() == [
        f"{root}: 29,957 bytes (29.25 KiB)",
        "shared count: 29,952 bytes",
        "being written: 1 files, 5 bytes; left by the dead: 1",
        "in quarantine: 0 files, 0 bytes",
        "",
        "namespace     model  state                          blocks  parts   bytes  last use",
        f"{row}2001-09-09T01:48:40+00:00",
    ]
    assert cli.main(["store", "stat", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["writing"] == {"files": 1, "bytes": 5, "abandoned": 1}
    assert found["namespaces"][0]["document"] == json.loads(MADE.namespace.encoded)
    assert (root / "temporary" / "dead").exists()


def test_verify_reads_every_part_and_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "verify", str(root)]) == 0
    assert capsys.readouterr().out == "ok: 6 right\n"
    first, second, third = (path_of(root, block[0]) for block in MADE.blocks(3))
    first.write_bytes(flipped(first.read_bytes(), 8 * 4000))
    second.write_bytes(third.read_bytes())
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(root)}
    assert cli.main(["store", "verify", str(root)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "damaged: 1 corrupt, 1 misplaced, 4 right"
    assert sorted(line.split(": ")[:2] for line in lines[:-1]) == [["corrupt", str(first)], ["misplaced", str(second)]]
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(root)}
    assert cli.main(["store", "verify", str(root), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["parts"] == {"corrupt": 1, "misplaced": 1, "right": 4}
    assert {problem["reason"] for problem in found["problems"]} == {"corrupt", "misplaced"}


def test_verify_holds_parts_to_the_spec_of_their_namespace(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part that was changed to fit another namespace, checksum and all: its spec gives it away."""
    other = scene(object_tokens=16, head_groups=1, revision="r2")
    filled(root, other, 1)
    path = path_of(root, other.block(0)[0])
    right, spec = path.read_bytes(), other.namespace.spec_fingerprint
    path.write_bytes(rewritten(right, change={"spec": "0" * 64}))
    assert cli.main(["store", "verify", str(root)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out == [f"misplaced: {path}: spec is '{'0' * 64}'", "damaged: 1 misplaced, 7 right"]
    path.write_bytes(right.replace(spec.encode(), b"0" * 64))
    assert cli.main(["store", "verify", str(root)]) == 1
    assert "1 corrupt" in capsys.readouterr().out  # the checksum is of the header, too


def test_gc_sweeps_counts_and_evicts(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "temporary" / "dead").write_bytes(b"12345")
    assert cli.main(["store", "gc", str(root), "--max-bytes", str(2 * BLOCK)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "swept 1 temporaries of dead processes",
        "evicted 2 parts, 9,984 bytes; spared 0 pinned blocks",
        "holds 19,968 bytes (19.5 KiB)",
    ]
    assert not path_of(root, MADE.block(0)[0]).exists()
    assert cli.main(["store", "gc", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"directory": str(root), "parts": 0, "nbytes": 0, "pinned": 0, "swept": 0, "used": 2 * BLOCK}


@pytest.mark.parametrize("action", ["ls", "stat", "verify", "gc"])
def test_what_is_no_store_is_status_2_and_is_left_alone(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["store", action, str(tmp_path)]) == 2
    assert "is not a store: it has no statehal-store.json (fix: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["store", action, str(tmp_path / "none")]) == 2
    (tmp_path / "statehal-store.json").write_text('{"format": 3}')
    assert cli.main(["store", action, str(tmp_path)]) == 2
    assert "has format 3 (fix: update statehal)" in capsys.readouterr().err


def test_a_namespace_that_is_not_there_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "ls", str(root), "--namespace", "xyz"]) == 2
    assert f"0 namespaces begin with 'xyz': expected one of {MADE.namespace.digest[:12]}" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"{}", b"no JSON", b'{"model":"\\u001b[31m"}', b"[" * 5000])
def test_a_description_that_is_none_is_said_to_be_missing(
    root: Path, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its digest is right: anybody can name a folder after what is in it."""
    folder = root / "namespaces" / digest(text)
    folder.mkdir()
    (folder / "namespace.json").write_bytes(text)
    assert cli.main(["store", "stat", str(root)]) == 0
    assert "not described" in capsys.readouterr().out


def test_what_a_directory_says_does_not_steer_the_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = canonical(json.loads(MADE.namespace.encoded) | {"model": "\x1b[31mred\n"})
    folder = root / "namespaces" / digest(text)
    folder.mkdir()
    (folder / "namespace.json").write_bytes(text)
    assert cli.main(["store", "stat", str(root)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "?[31mred?" in out


@pytest.mark.parametrize("arguments", [["verify"], ["gc"], ["ls"]])
def test_a_terminal_sees_progress_on_stderr(
    root: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert cli.main(["store", *arguments, str(root), "--json"]) == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert {"verify": "verifying", "gc": "collecting", "ls": "listing"}[arguments[0]] in captured.err
