"""What docs/corpus.md says besides its Python: the C++ example, compiled and run over the corpus, counts and links."""

import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import ROOT
from statehal.testing.corpus import NAMES, load

Json = dict[str, Any]

PAGE = (ROOT / "docs" / "corpus.md").read_text(encoding="utf-8")

HARNESS = """
#define main page_main
#include "page.cpp"
#undef main

int main() {
    if (page_main() != 0) return 2;
    Field f;
    long long layer_index, token, byte, element[4];
    auto read = [](long long& value) { return std::scanf("%lld", &value) == 1; };
    auto many = [&](int64_t* values, int32_t count) {
        for (int32_t i = 0; i < count; ++i) { long long v; if (!read(v)) return false; values[i] = v; }
        return true;
    };
    long long digits, axes, wrong = 0, count = 0, base, layer_stride, page_stride;
    while (read(base) && read(layer_stride) && read(page_stride) && read(digits) && read(axes)) {
        f.base = base; f.layer_stride = layer_stride; f.page_stride = page_stride;
        f.digits = digits; f.axes = axes;
        int64_t e[4];
        if (!many(f.token_shape, digits) || !many(f.token_strides, digits) || !many(f.row_strides, axes)) return 3;
        if (!read(layer_index) || !read(token) || !many(e, axes) || !read(byte)) return 3;
        wrong += address(f, layer_index, token, e) != byte;
        ++count;
    }
    std::printf("%lld addresses, %lld wrong\\n", count, wrong);
    return wrong ? 1 : 0;
}
"""


def addresses() -> list[list[int]]:
    """Every address of the corpus, after the integers that it follows from."""
    return [
        [
            *(field[key] for key in ("base", "layer_stride", "page_stride")),
            len(field["token_shape"]),
            len(field["row_shape"]),
            *field["token_shape"],
            *field["token_strides"],
            *field["row_strides"],
            next(index for index, group in enumerate(field["layers"]) if one["layer"] in group),
            one["token"],
            *one["element"],
            one["byte"],
        ]
        for vector in load("layout-vectors")["vectors"]
        for field in vector["fields"]
        for one in field["addresses"]
    ]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here: the C++ of docs/corpus.md is not compiled")
def test_the_cpp_example_computes_every_address_of_the_corpus(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```cpp\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.cpp").write_text(block, encoding="utf-8")
    (tmp_path / "harness.cpp").write_text(HARNESS, encoding="utf-8")
    for source in ("page", "harness"):
        command = ["g++", "-std=c++17", "-Wall", "-Wextra", f"{source}.cpp", "-o", source]
        built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        if source == "page":
            assert built.stderr == "", "the example compiles without warnings"
    assert subprocess.run([tmp_path / "page"], check=False, capture_output=True).returncode == 0
    lines = addresses()
    table = "\n".join(" ".join(map(str, line)) for line in lines)
    run = subprocess.run([tmp_path / "harness"], input=table, capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1] == f"{len(lines)} addresses, 0 wrong"
    assert run.returncode == 0


def test_the_cpp_example_shows_a_vector_as_it_is() -> None:
    (name,) = re.findall(r'// field "v" of the vector "(.*)"', PAGE)
    vector = next(vector for vector in load("layout-vectors")["vectors"] if vector["name"] == name)
    said = re.search(r"const Field v\{(.*?)\};", PAGE)
    assert said
    field = vector["fields"][1]
    lists = [field["token_shape"], field["token_strides"], field["row_strides"]]
    sizes = [field["base"], field["layer_stride"], field["page_stride"], len(lists[0]), len(lists[2])]
    assert [int(digits) for digits in re.findall(r"\d+", said[1])] == [*sizes, *chain(*lists)]
    sample = re.search(
        r"element\[\] = \{(.*?)\};.*?address\(v, (\d+), (\d+), element\);.*?byte == (\d+)", PAGE, re.DOTALL
    )
    assert sample
    element, (index, token, byte) = [int(one) for one in sample[1].split(",")], map(int, sample.groups()[1:])
    shown = {"layer": field["layers"][index][-1], "token": token, "element": element, "byte": byte}
    assert shown in field["addresses"]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_counts_the_vectors(name: str) -> None:
    assert f"| `{name}.json` | {len(load(name)['vectors'])} |" in PAGE


def test_the_page_explains_every_key() -> None:
    layout, conv = (load(name)["vectors"][0] for name in NAMES)
    keys = {*layout, *layout["placement"], *layout["fields"][0], *conv, *conv["step"], *conv["commit"]}
    obvious = {"name", "spec", "dtype", "itemsize", "slots", "x", "query_start_loc"}
    assert sorted(key for key in keys - obvious if key not in PAGE) == []
