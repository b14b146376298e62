"""Which bytes conv operations write: rows of windows at addresses computed by integer loops, and nothing else."""

from dataclasses import dataclass

import pytest
import torch

from reference.conv_oracle import Rig, rig, whole
from reference.kv_oracle import bits, raw
from statehal.layout import ConvStateLayout

LAYERS, CHANNELS, STATE = (6, 1, 3), 5, (2, 3)
WINDOWS = {
    "ring": ConvStateLayout(),
    "offset": ConvStateLayout(protocol="offset"),
    "ring channels first": ConvStateLayout("channels_first"),
    "offset channels first, padded": ConvStateLayout("channels_first", 4, "offset"),
    "ring, padded and aligned": ConvStateLayout(channel_multiple=8, align=64),
}


def up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass
class Bytes:
    """Addresses in a slot: ``conv`` and ``state`` of each layer side by side, then one cursor."""

    made: Rig
    window: ConvStateLayout
    rows: int
    size: int

    def conv(self, slot: int, layer: int, row: int, channel: int) -> int:
        channels = up(CHANNELS, self.window.channel_multiple)
        first = self.window.window_order == "rows_first"
        place = row * channels + channel if first else channel * self.rows + row
        return self.slot(slot) + layer * self.layer_bytes + place * self.size

    @property
    def state_at(self) -> int:
        window = self.rows * up(CHANNELS, self.window.channel_multiple) * self.size
        return up(window, max(4, self.window.align))

    @property
    def layer_bytes(self) -> int:
        return up(self.state_at + 4 * STATE[0] * STATE[1], max(4, self.window.align))

    def state(self, slot: int, layer: int) -> slice:
        start = self.slot(slot) + layer * self.layer_bytes + self.state_at
        return slice(start, start + 4 * STATE[0] * STATE[1])

    def cursor(self, slot: int) -> int:
        last = (len(LAYERS) - 1) * self.layer_bytes + self.state_at + 4 * STATE[0] * STATE[1]
        return self.slot(slot) + up(last, max(4, self.window.align))

    def slot(self, slot: int) -> int:
        sub = self.made.sub
        return sub.plan.region.offset + self.made.physical(slot) * sub.layout.page_bytes


def make(name: str, width: int, drafts: int, dtype: str, cursor: int) -> Bytes:
    """Slots full of random bytes, each with its cursor at the same row; sinks are zero."""
    window = WINDOWS[name]
    made = rig(width, CHANNELS, dtype, LAYERS, window, shared=True, verify_tokens=drafts, state=STATE)
    size = made.sub.view("conv", LAYERS[0]).dtype.itemsize
    where = Bytes(made, window, width - 1 + drafts - 1, size)
    noise = bits(made.pool.buffer.numel(), dtype=torch.uint8, seed=3) & 0xBF  # finite in every dtype
    image = bytearray(raw(noise))
    slab = made.sub.plan.region.slab_bytes
    image[:slab] = bytes(slab)
    for slot in range(1, 7):
        image[where.cursor(slot) : where.cursor(slot) + 4] = cursor.to_bytes(4, "little")
    made.pool.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
    return where


def put(image: bytearray, where: Bytes, slot: int, layer: int, row: int, values: torch.Tensor) -> None:
    data = raw(values)
    for channel in range(CHANNELS):
        at = where.conv(slot, layer, row, channel)
        image[at : at + where.size] = data[channel * where.size : (channel + 1) * where.size]


def kept(
    image: bytes, where: Bytes, slot: int, layer: int, cursor: int, width: int, dtype: torch.dtype
) -> torch.Tensor:
    """Live rows by protocol, read from an image of the buffer."""
    ring = where.window.protocol == "ring"
    data = bytearray()
    for n in range(width - 1):
        row = (cursor + n) % where.rows if ring else cursor + n
        for channel in range(CHANNELS):
            at = where.conv(slot, layer, row, channel)
            data += image[at : at + where.size]
    return torch.frombuffer(data, dtype=dtype).view(width - 1, CHANNELS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("width", "drafts", "cursor"), [(4, 1, 0), (4, 3, 0), (4, 3, 2), (2, 2, 1), (8, 1, 0)])
@pytest.mark.parametrize("name", WINDOWS)
def test_prefill_decode_and_commit(name: str, width: int, drafts: int, cursor: int, dtype: str) -> None:
    where = make(name, width, drafts, dtype, cursor)
    made, torch_dtype = where.made, getattr(torch, dtype)
    image = bytearray(raw(made.pool.buffer))
    ring = where.window.protocol == "ring"
    slots, lengths = (4, -1, 2, 0, 5), (2, 3, width, 1, 0)
    x = whole(8, sum(lengths) + 2, CHANNELS, dtype=torch_dtype)
    x[2:5] = x[-2:] = float("nan")
    has = torch.tensor([True, True, False, True, True])
    loc = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])

    def advance(slot: int, layer: int, history: torch.Tensor, tokens: torch.Tensor) -> None:
        rows = torch.cat([history, tokens])[len(tokens) :]
        for n, row in enumerate(rows):
            put(image, where, slot, layer, (cursor + 1 + n) % where.rows if ring else n, row)

    for index, layer in enumerate(LAYERS):
        before = bytes(image)
        made.conv.prefill(layer, x, loc, made.pick(*slots), has)
        for slot, start, end, initial in zip(slots, loc, loc[1:], has, strict=False):
            if slot > 0:
                old = kept(before, where, slot, index, cursor, width, torch_dtype)
                advance(slot, index, old if initial else torch.zeros_like(old), x[int(start) : int(end)])
        assert raw(made.pool.buffer) == bytes(image)
    made.conv.commit(made.pick(*slots), torch.full((5,), drafts))
    cursor_now = (cursor + drafts) % where.rows if ring else drafts - 1
    for slot in (4, 2, 5):
        image[where.cursor(slot) : where.cursor(slot) + 4] = cursor_now.to_bytes(4, "little")
    assert raw(made.pool.buffer) == bytes(image)
    cursor = cursor_now
    tokens = whole(9, 3, CHANNELS, dtype=torch_dtype)
    tokens[1] = float("nan")
    for index, layer in enumerate(LAYERS):
        before = bytes(image)
        made.conv.decode(layer, tokens, made.pick(5, -1, 4))
        for slot, row in ((5, tokens[:1]), (4, tokens[2:])):
            advance(slot, index, kept(before, where, slot, index, cursor, width, torch_dtype), row)
        assert raw(made.pool.buffer) == bytes(image)


@pytest.mark.parametrize("name", WINDOWS)
def test_an_empty_new_sequence_zeroes_window_and_state(name: str) -> None:
    where = make(name, 4, 2, "bfloat16", 1)
    made = where.made
    image = bytearray(raw(made.pool.buffer))
    ring = where.window.protocol == "ring"
    x = torch.zeros(0, CHANNELS, dtype=torch.bfloat16)
    made.conv.prefill(1, x, torch.tensor([0, 0, 0, 0]), made.pick(3, -1, 6), torch.tensor([False, False, True]))
    old = kept(bytes(image), where, 6, 1, 1, 4, torch.bfloat16)
    for n in range(3):
        put(image, where, 3, 1, (2 + n) % 4 if ring else n, torch.zeros(CHANNELS, dtype=torch.bfloat16))
        put(image, where, 6, 1, (2 + n) % 4 if ring else n, old[n])
    image[where.state(3, 1)] = bytes(4 * STATE[0] * STATE[1])
    assert raw(made.pool.buffer) == bytes(image)


def test_slots_are_copied_and_zeroed_whole() -> None:
    where = make("ring, padded and aligned", 4, 2, "bfloat16", 1)
    made = where.made
    page = made.sub.layout.page_bytes
    image = bytearray(raw(made.pool.buffer))
    before = bytes(image)
    made.conv.copy_slots(made.pick(1, 2, 3, -1, 4), made.pick(2, 1, -1, 5, 6))
    for source, target in ((1, 2), (2, 1), (4, 6)):
        image[where.slot(target) : where.slot(target) + page] = before[where.slot(source) : where.slot(source) + page]
    image[where.slot(5) : where.slot(5) + page] = bytes(page)
    assert raw(made.pool.buffer) == bytes(image)
    made.conv.zero_slots(made.pick(6, 0, -4, 3))
    for slot in (6, 3):
        image[where.slot(slot) : where.slot(slot) + page] = bytes(page)
    assert raw(made.pool.buffer) == bytes(image)
