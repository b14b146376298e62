"""``statehal certify``."""

import json
from pathlib import Path

import pytest

from statehal import cli


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["certify", "--example", "qwen3-next-80b", "--tensor", "4"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "qwen3-next-80b, tensor=4 pipeline=1 context=1",
        "",
        "sub-pool  certified  reason",
        "full      yes        k, v: 1 of 2 heads a rank, on 2 ranks each",
        "gdn       yes        conv.0, conv.1: 4 of 16 heads a rank; conv.2, state: 8 of 32 heads a rank",
    ]


def test_json_and_the_status_of_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "specs.json"
    full = {"kind": "Attention", "name": "full", "layers": [0, 1, 2], "kv_heads": 6, "head_dim": 8, "dtype": "bfloat16"}
    mla = {
        "kind": "Latent",
        "name": "mla",
        "layers": [3],
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "dtype": "bfloat16",
    }
    path.write_text(json.dumps([full, mla]))
    arguments = ["certify", str(path), "--tensor", "4", "--pipeline", "2", "--stage-layers", "3,1", "--json"]
    assert cli.main(arguments) == 1
    assert json.loads(capsys.readouterr().out) == {
        "topology": {"tensor": 4, "pipeline": 2, "context": 1, "stage_layers": [3, 1]},
        "subpools": [
            {
                "subpool": "full",
                "certified": False,
                "reason": "6 heads of 'k' do not divide over tensor=4, nor it over them",
            },
            {"subpool": "mla", "certified": True, "reason": "latent: whole on every rank"},
        ],
    }
    assert cli.main([*arguments[:2], "--layers", "3", "--pipeline", "2"]) == 1
    assert "falls inside the layer group (0, 1, 2) (fix: fewer layers a group)" in capsys.readouterr().out


def test_what_is_no_topology(capsys: pytest.CaptureFixture[str]) -> None:
    model = ["certify", "--example", "gpt-oss-20b"]
    assert cli.main([*model, "--stage-layers", "a"]) == 1
    assert capsys.readouterr().err == "statehal: --stage-layers 'a': expected counts such as 12,12\n"
    assert cli.main([*model, "--tensor", "0"]) == 1
    assert capsys.readouterr().err == "statehal: tensor=0 of a topology: expected an integer of at least 1\n"
