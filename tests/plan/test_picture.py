"""The picture: rectangles as wide as the bytes they stand for, well-formed, and readable in a browser."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import pytest

from plan import browser
from plan.models import GEMMA3_27B, MAMBA2_2_7B, QWEN3_NEXT_TP4
from statehal.cli.picture import render, size
from statehal.layout import PoolLayout, conv_window, layer_major, page_major, token_major
from statehal.pool import PoolPlan, plan
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec

INNER = 996.0  # of the picture's 1000 units, between its margins
BREAK = 150.0  # what stands for pieces that are left out

SMALL: list[Spec] = [
    Attention("full", (0, 4), 3, 192, "float8_e4m3fn", v_head_dim=128, scales="per_token_head", shared=((9, 4),)),
    Latent("mla", (1, 2, 3), 512, 64, "bfloat16", extra=(ExtraField("indexer", (132,), "uint8", (2, 3)),)),
    ConvRecurrent("gdn", (5, 6, 7), 96, 4, "bfloat16", verify_tokens=4),
]
LONG_NAMES: list[Spec] = [
    Attention("x" * 200, tuple(range(1000, 1004)), 1, 8, "bfloat16", shared=tuple((i, 1000) for i in range(40))),
    ConvRecurrent(
        "y",
        (1,),
        3,
        2,
        "int8",
        extra=(ExtraField("<&>", (3,), "int8"), ExtraField("<replay & 'ring'>" * 3, (3,), "int8")),
    ),
]


def tokens_in(make: Any) -> Any:
    def layout(spec: Spec, page_size: int) -> PoolLayout:
        made: PoolLayout = conv_window(spec) if spec.kind == "slots" else make(spec, page_size)
        return made

    return layout


def plans() -> dict[str, PoolPlan]:
    half = 400 * 1024**2
    return {
        "gemma": plan(GEMMA3_27B, total_bytes=8 * 1024**3),
        "qwen": plan(QWEN3_NEXT_TP4, total_bytes=8 * 1024**3),
        "mamba": plan([MAMBA2_2_7B], tokens=1, requests=2),
        "small": plan(SMALL, total_bytes=64 * 1024**2),
        "names": plan(LONG_NAMES, total_bytes=1024**2, page_size=4, waste_limit=0.3),
        "tokens": plan(SMALL, total_bytes=256 * 1024**2, layouts=tokens_in(token_major)),
        "layers": plan(
            GEMMA3_27B, total_bytes=1024**3, layouts=tokens_in(layer_major), budgets={"full": half, "swa": half}
        ),
        "page-1": plan(SMALL[:1], tokens=50, page_size=1, layouts=tokens_in(page_major)),
        "page-512": plan(SMALL[:2], tokens=50_000, page_size=512, layouts=tokens_in(token_major)),
        "page-128": plan(SMALL[:2], tokens=50_000, page_size=128, layouts=tokens_in(token_major)),
    }


PLANS = plans()


def drawings(made: PoolPlan) -> list[ET.Element]:
    """The pictures of a page, parsed as XML: one a sub-pool, then one a region."""
    found = re.findall(r'<svg viewBox="0 0 1000.*?</svg>', render(made, "t"), re.DOTALL)
    return [ET.fromstring(svg) for svg in found]


def bars(svg: ET.Element, **where: str) -> Iterator[tuple[float, float, dict[str, str]]]:
    """x, width and attributes of rectangles with these attributes."""
    for rect in svg.iter("rect"):
        if "x" in rect.attrib and all(rect.get(key.replace("_", "-")) == value for key, value in where.items()):
            yield float(rect.attrib["x"]), float(rect.attrib["width"]), dict(rect.attrib)


def test_a_whole_envelope_is_to_scale() -> None:
    """``full`` of SMALL: of each of two layers 16 rows of 576, 384, 12 and 12 bytes, then padding."""
    made = PLANS["small"]
    page = made.subpools["full"].layout.page_bytes
    lengths = [16 * 576, 16 * 384, 16 * 12, 16 * 12] * 2
    lengths.append(page - sum(lengths))
    names = ["k", "v", "k_scale", "v_scale"] * 2 + ["padding"]
    drawn = [bar for bar in bars(drawings(made)[0]) if "data-bytes" in bar[2]]
    assert [bar[2]["data-field"] for bar in drawn] == names
    at = 0
    for (x, width, attributes), length in zip(drawn, lengths, strict=True):
        assert int(attributes["data-bytes"]) == length
        assert x == pytest.approx(2 + INNER * at / page, abs=0.001)
        assert width == pytest.approx(INNER * length / page, abs=0.001)
        at += length
    assert at == page


def test_a_long_envelope_is_left_out_in_the_middle_and_says_so() -> None:
    """``swa`` of Gemma 3: 52 layers of 65,536 bytes of K and of V a page, and padding."""
    made = PLANS["gemma"]
    svg = drawings(made)[1]
    page, row = made.subpools["swa"].layout.page_bytes, 16 * 16 * 128 * 2
    drawn = [bar for bar in bars(svg) if "data-bytes" in bar[2]]
    sizes = [int(attributes["data-bytes"]) for _, _, attributes in drawn]
    padding = page - 2 * 52 * row
    assert sizes == [row] * (len(sizes) - 1) + [padding]
    scale = (INNER - BREAK) / sum(sizes)
    for _, width, attributes in drawn:
        assert width == pytest.approx(int(attributes["data-bytes"]) * scale, abs=0.001)
    shown = (len(sizes) - 1) // 2
    words = [text.text for text in svg.iter("text")]
    assert f"{52 - shown} more layers" in words
    assert size((52 - shown) * 2 * row) in words
    assert "not drawn" in words
    starts = [int(attributes["data-start"]) for _, _, attributes in drawn]
    assert starts[-3:] == [page - padding - 2 * row, page - padding - row, page - padding]
    # the bar below has the whole page: solid where it is drawn above
    parts = [
        (attributes["class"], width) for _, width, attributes in bars(svg) if attributes["class"] in ("drawn", "elided")
    ]
    assert [cls for cls, _ in parts] == ["drawn", "elided", "drawn"]
    assert parts[1][1] == pytest.approx(INNER * (52 - shown) * 2 * row / page, abs=0.001)
    assert sum(width for _, width in parts) == pytest.approx(INNER, abs=0.01)


def test_a_token_major_page_is_drawn_as_entries() -> None:
    made = PLANS["tokens"]
    svg = drawings(made)[1]
    entry = 3 * 1152 + 2 * 132
    stride = made.subpools["mla"].layout.page_bytes
    entries = list(bars(svg, data_field="entry"))
    assert len(entries) == 16
    for index, (x, width, attributes) in enumerate(entries):
        assert int(attributes["data-bytes"]) == entry
        assert x == pytest.approx(2 + INNER * index * entry / stride, abs=0.001)
        assert width == pytest.approx(INNER * entry / stride, abs=0.001)
    drawn = [(attributes.get("data-field"), width) for _, width, attributes in bars(svg)]
    rows = [(name, width) for name, width in drawn if name in ("latent", "indexer")]
    assert [name for name, _ in rows] == ["latent"] * 3 + ["indexer"] * 2
    for name, width in rows:
        assert width == pytest.approx(INNER * (1152 if name == "latent" else 132) / entry, abs=0.001)


def test_entries_too_thin_to_see_are_counted_instead() -> None:
    svg = drawings(PLANS["page-512"])[0]
    assert len(list(bars(svg, data_field="entry"))) == 1
    ((_, width, _),) = bars(svg, **{"class": "elided"})
    assert width == pytest.approx(INNER * 511 / 512, abs=0.001)
    assert "511 more, too thin to be drawn singly" in [text.text for text in svg.iter("text")]


def test_a_layer_major_page_is_drawn_as_its_ranges() -> None:
    svg = drawings(PLANS["layers"])[1]
    assert [attributes["data-bytes"] for _, _, attributes in bars(svg) if "data-bytes" in attributes] == ["65536"] * 2
    words = " ".join(text.text or "" for text in svg.iter("text"))
    assert words.count("and one in each of 51 more layers") == 2


@pytest.mark.parametrize("name", ["gemma", "qwen", "small"])
def test_slabs_divide_into_pages_to_scale(name: str) -> None:
    made = PLANS[name]
    svg = drawings(made)[-1]
    for sub in made.subpools.values():
        pages = list(bars(svg, data_subpool=sub.name))
        width = INNER / sub.pages_per_slab
        assert len(pages) == (sub.pages_per_slab if width >= 4 else 1)
        for index, (x, drawn, attributes) in enumerate(pages):
            assert int(attributes["data-bytes"]) * sub.pages_per_slab == made.regions[0].slab_bytes
            assert x == pytest.approx(2 + index * width, abs=0.001)
            assert drawn == pytest.approx(width, abs=0.001)
    words = " ".join(text.text or "" for text in svg.iter("text"))
    assert f"{made.regions[0].num_slabs:,} slab" in words
    assert "the sink" in words


@pytest.mark.parametrize("name", PLANS)
def test_nothing_is_drawn_outside_the_picture_and_labels_do_not_touch(name: str) -> None:
    """With letters of 0.62 em, which no monospaced font in use exceeds."""
    for svg in drawings(PLANS[name]):
        _, _, across, down = map(float, svg.attrib["viewBox"].split())
        boxes = []
        for text in svg.iter("text"):
            width = len(text.text or "") * 0.62 * 13
            x, y = float(text.attrib["x"]), float(text.attrib["y"])
            left = {"start": x, "middle": x - width / 2, "end": x - width}[text.attrib["text-anchor"]]
            boxes.append((left, y - 10, left + width, y + 3, text.text))
        for _, _, attributes in bars(svg):
            x, y = float(attributes["x"]), float(attributes["y"])
            assert x >= 0
            assert y >= 0
            assert x + float(attributes["width"]) <= across
            assert y + float(attributes["height"]) <= down
        for box in boxes:
            assert box[0] >= 0, box
            assert box[1] >= 0, box
            assert box[2] <= across, box
            assert box[3] <= down, box
        for index, one in enumerate(boxes):
            for other in boxes[index + 1 :]:
                apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
                assert apart, (one, other)


class Checker(HTMLParser):
    """Open and closed elements, ids, references to elsewhere and cells of tables."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.elsewhere: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.elsewhere += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "onload")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


@pytest.mark.parametrize("name", PLANS)
def test_the_file_is_well_formed_and_needs_nothing_else(name: str) -> None:
    text = render(PLANS[name], "title")
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert checker.elsewhere == []
    assert not {"script", "link", "img", "iframe", "object"} & set(checker.tags)
    assert not re.search(r"url\((?!#)|@import|https?:", text)
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | set(" ".join(re.findall(r'labelledby="([^"]+)"', text)).split())
    assert used <= set(checker.ids)


@pytest.mark.parametrize("name", ["gemma", "qwen", "small"])
def test_tables_have_the_plans_numbers(name: str) -> None:
    made = PLANS[name]
    checker = Checker()
    checker.feed(render(made, "title"))
    for sub in made.subpools.values():
        numbers = [
            sub.region.slab_bytes, sub.region.num_slabs, sub.pages_per_slab, sub.layout.page_bytes,
            sub.layout.payload_bytes,
        ]  # fmt: skip
        row = [sub.name, *(f"{number:,}" for number in numbers), f"{sub.bytes_per_token:,.1f}", f"{sub.waste:.2%}"]
        row.append(f"{sub.max_pages:,}")
        starts = [i for i, cell in enumerate(checker.cells) if cell == sub.name]
        assert row in [checker.cells[i : i + len(row)] for i in starts]
        for field in sub.layout.fields:
            assert f"{field.row_bytes:,}" in checker.cells
            assert f"{sub.layout.kinds(field.name)[0]}, ratio {sub.layout.form(field.name).ratio:,}" in checker.cells


def test_names_are_escaped() -> None:
    text = render(PLANS["names"], "<script>alert('x & y')</script>")
    assert "<script>" not in text
    assert "<replay" not in text
    assert "&lt;script&gt;alert(&#x27;x &amp; y&#x27;)&lt;/script&gt;" in text
    assert "&lt;replay &amp; &#x27;ring&#x27;&gt;" in text


def test_every_picture_has_a_title_and_a_description() -> None:
    for name, made in PLANS.items():
        found = drawings(made)
        assert len(found) == len(made.subpools) + len(made.regions), name
        for svg in found:
            title, desc = svg.find("title"), svg.find("desc")
            assert title is not None
            assert desc is not None
            assert svg.attrib["role"] == "img"
            assert svg.attrib["aria-labelledby"] == f"{title.attrib['id']} {desc.attrib['id']}"
            assert title.text
            assert desc.text
            assert desc.text != title.text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1 KiB"), (27525120, "26.25 MiB"), (1 << 50, "1,024 TiB")],
)
def test_sizes_in_words(number: int, text: str) -> None:
    assert size(number) == text


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)``."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def within(inner: list[float], outer: list[float], slack: float = 0.6) -> bool:
    return (
        inner[0] >= outer[0] - slack
        and inner[1] >= outer[1] - slack
        and inner[2] <= outer[2] + slack
        and inner[3] <= outer[3] + slack
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_every_label_whole_and_legible(scheme: Literal["light", "dark"], tmp_path: Path) -> None:
    """All plans in one file: silent console, no label outside its picture or on another, contrast of at least 4.5."""
    path = browser.find()
    if path is None:
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    bodies = ""
    for name, made in PLANS.items():
        (body,) = re.findall(r"<body>(.*)</body>", render(made, name), re.DOTALL)
        bodies += re.sub(r"\b(t|d|hole|sink)-([pr]\d)", rf"\1-{name}-\2", body)
    page = tmp_path / "all.html"
    page.write_text(
        re.sub(r"<body>.*</body>", lambda _: f"<body>{bodies}</body>", render(PLANS["gemma"], "all"), flags=re.DOTALL)
    )
    seen = browser.look(path, page, scheme, tmp_path)
    assert seen.errors == []
    assert seen.console == []
    assert seen.width <= 1100
    assert (luminance(seen.background) > luminance(seen.ink)) is (scheme == "light")
    assert contrast(seen.background, seen.ink) > 7
    assert len(seen.pictures) == sum(len(made.subpools) + len(made.regions) for made in PLANS.values())
    for picture in seen.pictures:
        texts = picture["texts"]
        assert texts, picture["title"]
        for index, text in enumerate(texts):
            assert within(text["box"], picture["box"]), (picture["title"], text)
            under = [
                rect for rect in picture["rects"] if within(text["box"], rect["box"]) and "url" not in rect["colour"]
            ]
            back = under[-1]["colour"] if under else seen.background
            assert contrast(back, text["colour"]) >= 4.5, (picture["title"], text, back)
            for other in texts[index + 1 :]:
                a, b = text["box"], other["box"]
                assert a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 4 or b[3] <= a[1] + 4, (text, other)
