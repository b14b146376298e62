"""Address forms of a field: which exist, how ids count, and which stride of pages makes them exist."""

from dataclasses import dataclass

from statehal.testing.corpus.arithmetic import common, up
from statehal.testing.corpus.rows import Json, Row

KINDS = ("row", "block", "page")


@dataclass(frozen=True)
class Placed:
    """A field in its page, in bytes.

    Attributes:
        token_step: between neighbouring tokens; ``None`` where a place has more than one digit.
        footprint: from the first to past the last byte that one layer has in a page.
    """

    row: Row
    page_size: int
    page_stride: int
    token_step: int | None
    footprint: int

    @property
    def block(self) -> int:
        """Bytes of a block: the footprint in whole token steps."""
        return up(self.footprint, self.token_step or 1)

    def absent(self, kind: str) -> str | None:
        """Why the form does not exist."""
        if kind == "row":
            if self.token_step is None:
                return "mixed_radix"
            return "remainder" if self.page_stride % self.token_step else None
        if kind == "block":
            if self.block != self.page_size * self.row.bytes:
                return "holes"
            return "remainder" if self.page_stride % self.block else None
        return None

    def unit(self, kind: str) -> int:
        """What the stride of pages must be a multiple of for the form to exist."""
        if kind == "row":
            return self.token_step or 1
        return self.block if kind == "block" else 1

    def form(self, kind: str, num_pages: int, tokens: list[int], pages: list[int]) -> Json:
        """A form and its ids, or why there is none."""
        reason = self.absent(kind)
        if reason is not None:
            return {"absent": reason}
        step = {"row": self.token_step, "block": self.block, "page": self.page_stride}[kind]
        assert step is not None
        ratio = self.page_stride // step
        between = ratio if kind == "row" else ratio * self.page_size  # token ids from page to page
        token_ids = [token // self.page_size * between + token % self.page_size for token in tokens]
        count = (num_pages - 1) * ratio + (self.page_size if kind == "row" else 1)
        return {
            "ratio": ratio,
            "step": step,
            "count": count,
            "token_ids": token_ids,
            "page_ids": [page * ratio for page in pages],
        }


def granularity(fields: list[Placed], forms: dict[str, list[str]], align: int) -> int:
    """What a planner rounds the stride of pages up to, so that every form in use exists and all stays aligned."""
    units = [field.unit(kind) for field in fields for kind in forms.get(field.row.name, ["page"])]
    return common(align, *units, *(field.row.itemsize for field in fields))
