"""Recompute every vector of the corpus from the formulas of docs/corpus.md; a pattern for a port to another language.

    python examples/corpus/check_vectors.py [FOLDER]

Needs Python's standard library and the two JSON files, which FOLDER holds: by default those of this checkout. Prints
how many vectors agree, and what differs; exits with 1 if one does.
"""

import json
import math
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "core" / "statehal" / "testing" / "corpus"

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1}
ITEMSIZE |= {"float8_e5m2fnuz": 1, "int8": 1, "uint8": 1, "int32": 4, "int64": 8}


class Differs(Exception):
    """A vector says something else than the formulas."""


def same(what, said, found):
    """Refuse a vector that says something else than was found."""
    if said != found:
        raise Differs(f"{what}: the vector says {said}, the formulas say {found}")


# ------------------------------------------------------------------------------------------------------------- layouts


def place(field, token_in_page):
    """Bytes from the start of a page to a token: digits over ``token_shape``, most significant first, times strides."""
    total = 0
    for size, stride in zip(reversed(field["token_shape"]), reversed(field["token_strides"]), strict=True):
        total += token_in_page % size * stride
        token_in_page //= size
    return total


def address(field, layer, token, element):
    """Byte of an element, from the start of the buffer; ``layer`` is a model layer id."""
    page_size = math.prod(field["token_shape"])
    layer_index = next(index for index, group in enumerate(field["layers"]) if layer in group)
    return (
        field["base"]
        + layer_index * field["layer_stride"]
        + token // page_size * field["page_stride"]
        + place(field, token % page_size)
        + sum(digit * stride for digit, stride in zip(element, field["row_strides"], strict=True))
    )


def extent(field):
    """Bytes from the first to past the last that one layer has in a page."""
    shape, strides = field["token_shape"] + field["row_shape"], field["token_strides"] + field["row_strides"]
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + field["itemsize"]


def form_of(field, kind):
    """How ids of a form count: the bytes of a step and how many steps are between pages, or why there is no form."""
    page_size, page_stride = math.prod(field["token_shape"]), field["page_stride"]
    linear = len(field["token_shape"]) == 1
    if kind == "page":
        return {"ratio": 1, "step": page_stride}
    if kind == "row":
        if not linear:
            return {"absent": "mixed_radix"}
        step = field["token_strides"][0]
    else:
        step = extent(field)
        if linear:  # whole token steps
            step = -(-step // field["token_strides"][0]) * field["token_strides"][0]
        if step != page_size * math.prod(field["row_shape"]) * field["itemsize"]:
            return {"absent": "holes"}
    if page_stride % step:
        return {"absent": "remainder"}
    return {"ratio": page_stride // step, "step": step}


def check_form(field, kind, vector):
    """A form, its ids, and that an id leads to the token's row."""
    said, found = field["forms"][kind], form_of(field, kind)
    if "absent" not in found:
        page_size, ratio = math.prod(field["token_shape"]), found["ratio"]
        between = ratio if kind == "row" else ratio * page_size
        last = (vector["placement"]["num_pages"] - 1) * ratio
        found["count"] = last + (page_size if kind == "row" else 1)
        found["token_ids"] = [token // page_size * between + token % page_size for token in vector["tokens"]]
        found["page_ids"] = [page * ratio for page in vector["pages"]]
        zero, layer = [0] * len(field["row_shape"]), field["layers"][0][0]
        for token, token_id in zip(vector["tokens"], found["token_ids"], strict=True):
            if kind == "row":
                row = field["base"] + token_id * found["step"]
            else:
                row = field["base"] + token_id // page_size * found["step"] + place(field, token_id % page_size)
            same(f"{field['name']} token {token} by its {kind} id", row, address(field, layer, token, zero))
    same(f"{field['name']} {kind} form", said, found)


def check_layout(vector):
    """One layout vector."""
    pages, fields, offset = vector["placement"]["num_pages"], vector["fields"], vector["placement"]["offset"]
    if vector["layout"]["constructor"] == "layer_major":
        page_bytes = sum(len(field["layers"]) * field["page_stride"] for field in fields)
        ends = [field["base"] + len(field["layers"]) * pages * field["page_stride"] for field in fields]
        end = max(ends)
        for field in fields:
            same(f"{field['name']} layer_stride", field["layer_stride"], pages * field["page_stride"])
    else:
        page_bytes = vector["placement"]["page_stride"]
        end = offset + pages * page_bytes
        for field in fields:
            same(f"{field['name']} page_stride", field["page_stride"], page_bytes)
    same("page_bytes", vector["page_bytes"], page_bytes)
    same("total_bytes", vector["total_bytes"], end)
    if "slab_bytes" in vector["placement"]:
        same("slab_bytes", vector["placement"]["slab_bytes"], vector["placement"]["pages_per_slab"] * page_bytes)
    same("the first byte", offset, min(field["base"] for field in fields))
    for field in fields:
        same(f"{field['name']} itemsize", field["itemsize"], ITEMSIZE[field["dtype"]])
        same(f"{field['name']} page size", math.prod(field["token_shape"]), vector["layout"]["page_size"])
        for one in field["addresses"]:
            what = f"{field['name']} layer {one['layer']} token {one['token']} element {one['element']}"
            same(what, one["byte"], address(field, one["layer"], one["token"], one["element"]))
        for kind in ("row", "block", "page"):
            check_form(field, kind, vector)


# -------------------------------------------------------------------------------------------------------- convolutions


class Windows:
    """The windows of a vector, row by row, and where their rows lie by protocol."""

    def __init__(self, vector):
        self.protocol, self.rows, self.taps = vector["protocol"], vector["window_rows"], vector["width"] - 1
        self.channels, self.first = vector["channels"], vector["window_order"] == "rows_first"
        multiple = vector["channel_multiple"]
        self.padding = -(-self.channels // multiple) * multiple - self.channels
        self.slots = {one["slot"]: self.loaded(one["window"]) for one in vector["before"]}
        self.cursors = {one["slot"]: one["cursor"] for one in vector["before"]}

    def loaded(self, stored):
        """Rows without padding channels."""
        rows = stored if self.first else [list(row) for row in zip(*stored, strict=True)]
        return [row[: self.channels] for row in rows]

    def stored(self, slot):
        """A window as it lies in memory."""
        rows = [row + [0] * self.padding for row in self.slots[slot]]
        return rows if self.first else [list(channel) for channel in zip(*rows, strict=True)]

    def live_rows(self, cursor):
        """Rows of the live inputs, oldest first."""
        if self.protocol == "ring":
            return [(cursor + i) % self.rows for i in range(self.taps)]
        start = cursor if self.protocol == "offset" else self.rows - self.taps
        return [start + i for i in range(self.taps)]

    def row_of(self, cursor, position):
        """The row of a position of the step."""
        return (cursor + position) % self.rows if self.protocol == "ring" else position - 1

    def after(self, cursor, accepted):
        """The cursor after a commit."""
        if self.protocol == "ring":
            return (cursor + accepted) % self.rows
        return accepted - 1 if self.protocol == "offset" else 0

    def history(self, slot):
        """Live inputs; zeros for padding."""
        if slot is None or slot <= 0:
            return [[0] * self.channels for _ in range(self.taps)]
        return [self.slots[slot][row] for row in self.live_rows(self.cursors[slot])]


def convolve(vector, history, tokens, parents):
    """Outputs of the tokens of one request."""
    weight, bias, taps = vector["weight"], vector["bias"] or [0] * vector["channels"], len(history)
    result = []
    for token in range(len(tokens)):
        inputs, at, above = [], token, 0  # the newest first: a token, its ancestors, then the history
        while len(inputs) <= taps:
            if at >= 0:
                inputs.append(tokens[at])
                at = parents[at]
            else:
                above += 1
                inputs.append(history[taps - above])
        row = [
            bias[channel] + sum(weight[channel][tap] * inputs[taps - tap][channel] for tap in range(taps + 1))
            for channel in range(vector["channels"])
        ]
        result.append([t / (1 + math.exp(-t)) for t in row] if vector["activation"] == "silu" else row)
    return result


def check_conv(vector):
    """One conv vector."""
    windows = Windows(vector)
    check_outputs(vector, run_step(vector, windows))
    check_slots("after the step", vector["after_step"], windows)
    run_commit(vector, windows)
    check_slots("after the commit", vector["after_commit"], windows)
    for one in vector["after_commit"]:
        same(f"live rows of slot {one['slot']}", one["live_rows"], windows.live_rows(one["cursor"]))
        same(f"live inputs of slot {one['slot']}", one["live"], windows.history(one["slot"]))


def run_step(vector, windows):
    """Outputs of a prefill, decode or verify, whose inputs go to positions 1 and up of the windows."""
    step, method, count = vector["step"], vector["step"]["method"], len(vector["step"]["slots"])
    sources = step["slots"]
    if method == "prefill":
        has = step["has_initial_state"] or [False] * count
        sources = [slot if given else None for slot, given in zip(step["initial_slots"] or sources, has, strict=True)]
    histories = [windows.history(source) for source in sources]  # all are read before any is written
    length = 1 if method == "decode" else vector["verify_tokens"]
    starts = step["query_start_loc"] or [length * i for i in range(count + 1)]
    y = [[0] * vector["channels"] for _ in step["x"]]
    for i, slot in enumerate(step["slots"]):
        if slot <= 0:
            continue
        rows = slice(starts[i], starts[i + 1])
        tokens, cursor = step["x"][rows], windows.cursors[slot]
        parents = step["parents"][rows] if step["parents"] else list(range(-1, len(tokens) - 1))
        y[rows] = convolve(vector, histories[i], tokens, parents)
        inputs = histories[i] + tokens
        if method == "prefill":  # its last inputs, as if they were the history and the token of a decode
            inputs = [None, *inputs[len(inputs) - windows.taps :]]
        for position in range(1, len(inputs)):
            windows.slots[slot][windows.row_of(cursor, position)] = inputs[position]
    return y


def run_commit(vector, windows):
    """Positions ``accepted`` and up become live; position ``L + i`` of a tree is the row of ``path[i]``."""
    for i, slot in enumerate(vector["step"]["slots"]):
        if slot <= 0:
            continue
        window, cursor, accepted = windows.slots[slot], windows.cursors[slot], vector["commit"]["accepted"][i]
        kept = []
        for position in range(accepted, accepted + windows.taps):
            if vector["commit"]["path"] and position >= windows.taps:
                position = windows.taps + vector["commit"]["path"][i][position - windows.taps]
            kept.append(window[windows.row_of(cursor, position)])
        windows.cursors[slot] = windows.after(cursor, accepted)
        for row, values in zip(windows.live_rows(windows.cursors[slot]), kept, strict=True):
            window[row] = values


def check_outputs(vector, y):
    """Outputs: equal, or within the tolerance of an activation."""
    relative, absolute = vector["tolerance"]["relative"], vector["tolerance"]["absolute"]
    same("rows of y", len(vector["y"]), len(y))
    for token, (said, found) in enumerate(zip(vector["y"], y, strict=True)):
        same(f"channels of y[{token}]", len(said), len(found))
        if not all(abs(a - b) <= absolute + relative * abs(a) for a, b in zip(said, found, strict=True)):
            same(f"y[{token}]", said, found)


def check_slots(when, said, windows):
    """Windows and cursors."""
    same(f"slots {when}", [one["slot"] for one in said], list(windows.slots))
    for one in said:
        same(f"cursor of slot {one['slot']} {when}", one["cursor"], windows.cursors[one["slot"]])
        same(f"window of slot {one['slot']} {when}", one["window"], windows.stored(one["slot"]))


# ---------------------------------------------------------------------------------------------------------------- main


CHECKS = {"layout-vectors.json": check_layout, "conv-vectors.json": check_conv}


def main(arguments):
    """Check both files; 1 if a vector differs."""
    folder, failed = Path(arguments[0]) if arguments else FOLDER, 0
    for name, check in CHECKS.items():
        vectors = json.loads((folder / name).read_text(encoding="utf-8"))["vectors"]
        wrong = 0
        for vector in vectors:
            try:
                check(vector)
            except (Differs, ArithmeticError, LookupError, TypeError, StopIteration) as error:
                wrong += 1
                sys.stdout.write(f"{name}: {vector['name']}: {type(error).__name__}: {error}\n")
        sys.stdout.write(f"{name}: {len(vectors) - wrong} of {len(vectors)} vectors agree\n")
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
