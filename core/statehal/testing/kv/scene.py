"""The pool that is made of a setting, and its bytes as they should be."""

import torch

from statehal.ids import KernelIds
from statehal.layout import FieldLayout
from statehal.testing.draws import pick
from statehal.testing.kv.setting import TOKENS, Setting
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.oracles.kv_rows import clear_sink, get, put
from statehal.testing.target import Target


class Scene:
    """A pool full of arbitrary bytes, with a sink of zeros and 16 tokens of ``"kv"`` at pages that are no virtual ones.

    Attributes:
        sub: the sub-pool ``"kv"``.
        pages: handle on the tokens.
        writer: the backend's, for ``sub``.
        ids: of the setting's tokens.
    """

    def __init__(self, target: Target, setting: Setting) -> None:
        self.target = target
        self.setting = setting
        specs = [setting.spec, *setting.others]
        self.pool = target.pool(specs, tokens=64, requests=2, page_size=setting.page_size)
        self.sub = self.pool["kv"]
        hole = self.pool.alloc(1, "kv")
        self.pages = self.pool.alloc(TOKENS, "kv")
        self.pool.free(hole)
        self.pool.flush()
        generator = torch.Generator().manual_seed(setting.seed)
        noise = torch.randint(0, 256, self.pool.buffer.shape, generator=generator, dtype=torch.uint8)
        for sub in self.pool.subpools.values():
            clear_sink(noise, sub.layout.fields)
        self.pool.buffer.copy_(noise)
        self.writer = target.binding().kv(self.sub)
        self.ids = self.pick(setting.tokens)

    def pick(self, tokens: tuple[int, ...]) -> KernelIds:
        """Kernel ids of some tokens, padding as the setting says."""
        setting = self.setting
        return pick(self.target, self.sub, self.pages, tokens, setting.id_dtype, negative=setting.negative)

    def field(self, name: str) -> FieldLayout:
        """The integers of a field."""
        return self.sub.layout.field(name)

    def place(self, token: int) -> tuple[int, int]:
        """The physical page of a token, and its place there."""
        page, place = divmod(token, self.setting.page_size)
        return self.sub.member.table[self.pages.ids[page]], place

    def image(self) -> bytearray:
        """The pool's bytes."""
        return self.target.image(self.pool)

    def put(self, image: bytearray, name: str, token: int, row: bytes, layer: int | None = None) -> None:
        """Store a row of the setting's layer, or of another; padding is left out."""
        if token >= 0:
            put(image, self.field(name), self.setting.layer if layer is None else layer, self.place(token), row)

    def get(self, image: bytes | bytearray, name: str, token: int, layer: int | None = None) -> bytes:
        """The bytes of a row of the setting's layer, or of another."""
        return get(image, self.field(name), self.setting.layer if layer is None else layer, self.place(token))

    def compare(self, wanted: bytes | bytearray, after: str) -> None:
        """Fail where the pool's bytes are not those.

        Args:
            after: what was done.
        """
        different = first_difference(self.pool, wanted, self.image())
        assert not different, f"{after}: {different}"
