"""Every layout vector agrees with `statehal.layout` and, where it says how a pool is planned, with `statehal.plan`."""

from typing import Any

import pytest

import statehal
from statehal.errors import LayoutError
from statehal.layout import (
    ConvStateLayout,
    FieldLayout,
    PoolLayout,
    address_form,
    conv_window,
    layer_major,
    nz,
    page_major,
    token_major,
    view_geometry,
)
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec
from statehal.testing.corpus import load

Json = dict[str, Any]

VECTORS: list[Json] = load("layout-vectors")["vectors"]
SPECS = {"attention": Attention, "latent": Latent, "conv_recurrent": ConvRecurrent}


def spec_of(vector: Json) -> Spec:
    given = dict(vector["spec"])
    kind = SPECS[given.pop("kind")]
    given["extra"] = tuple(
        ExtraField(e["name"], tuple(e["row_shape"]), e["dtype"], e["layers"] and tuple(e["layers"]))
        for e in given["extra"]
    )
    made: Spec = kind(name="vector", **given)
    return made


def tight_of(vector: Json) -> PoolLayout:
    """What the vector's constructor makes of its spec."""
    given, spec = vector["layout"], spec_of(vector)
    size, forms, align = given["page_size"], tuple(given["forms"]), given.get("align", 1)
    match given["constructor"]:
        case "page_major":
            return page_major(spec, size, order=given["order"], forms=forms, align=align)
        case "token_major":
            return token_major(spec, size, forms=forms, align=align)
        case "layer_major":
            return layer_major(spec, size, order=given["order"], forms=forms)
        case "nz":
            return nz(spec, size, forms=forms, align=align)
        case "conv_window":
            chosen = ConvStateLayout(
                given["window_order"], given["channel_multiple"], given["protocol"], forms=forms, align=align
            )
            return conv_window(spec, chosen)
        case "x_packed":  # no constructor makes it: the vector's own integers, over which addresses are compared
            return PoolLayout(tuple(own_field(field) for field in vector["fields"]), (), align=align)
        case other:
            raise AssertionError(other)


def own_field(field: Json) -> FieldLayout:
    """A field of a vector's own integers."""
    return FieldLayout(
        field["name"],
        field["dtype"],
        tuple(tuple(group) for group in field["layers"]),
        tuple(field["row_shape"]),
        tuple(field["row_strides"]),
        tuple(field["token_shape"]),
        tuple(field["token_strides"]),
        field["base"],
        field["layer_stride"],
        field["page_stride"],
    )


def layout_of(vector: Json) -> PoolLayout:
    place, tight = vector["placement"], tight_of(vector)
    if vector["layout"]["constructor"] == "x_packed":
        return tight.resize(place["num_pages"])
    return tight.resize(place["num_pages"], place.get("page_stride")).at(place["offset"])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_statehal_lays_out_what_a_vector_says(vector: Json) -> None:
    layout = layout_of(vector)
    if vector["placement"]["num_pages"] < 100 and vector["page_bytes"] < 200_000:
        layout.check()
    if vector["placement"]["num_pages"] > 2:  # else it is as its constructor made it, and forms in use may be absent
        layout.check_bounds("vector")
    assert (layout.page_bytes, layout.total_bytes) == (vector["page_bytes"], vector["total_bytes"])
    assert [field.name for field in layout.fields] == [field["name"] for field in vector["fields"]]
    for field, said in zip(layout.fields, vector["fields"], strict=True):
        assert (field, field.itemsize) == (own_field(said), said["itemsize"])
        for one in said["addresses"]:
            assert field.address(one["layer"], one["token"], tuple(one["element"])) == one["byte"]
        for kind, form in said["forms"].items():
            agrees_on_form(field, kind, form, vector)


def agrees_on_form(field: FieldLayout, kind: Any, said: Json, vector: Json) -> None:
    if "absent" in said:
        with pytest.raises(LayoutError, match=f"has no {kind} form"):
            address_form(field, kind)
        return
    form, size = address_form(field, kind), field.page_size
    assert form.ratio == said["ratio"]
    geometry = view_geometry(field, kind, field.layers[0][0], vector["placement"]["num_pages"])
    assert (geometry.shape[0], geometry.strides[0] * field.itemsize) == (said["count"], said["step"])
    pages = [page * form.multiplier("pages", size) for page in vector["pages"]]
    tokens = [token // size * form.multiplier("tokens", size) + token % size for token in vector["tokens"]]
    assert (pages, tokens) == (said["page_ids"], said["token_ids"])


ALONE = [
    vector
    for vector in VECTORS
    if (vector["placement"]["offset"], vector["placement"]["num_pages"]) == (0, 3)
    and vector["layout"]["constructor"] not in ("layer_major", "x_packed")
]


@pytest.mark.parametrize("vector", ALONE, ids=lambda vector: vector["name"])
def test_a_planner_widens_the_pages_of_a_pool_of_its_own_as_a_vector_says(vector: Json) -> None:
    tokens = 2 * vector["layout"]["page_size"]
    tight, spec = tight_of(vector), spec_of(vector)
    planned = statehal.plan(
        [spec], tokens=tokens, requests=2, page_size=vector["layout"]["page_size"], layouts=lambda *_: tight
    )
    assert planned.subpools["vector"].layout == layout_of(vector)
