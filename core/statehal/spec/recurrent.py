"""Layers with a causal convolution and a recurrent state (Mamba2, GDN, KDA, short conv)."""

from dataclasses import dataclass, field
from operator import mod
from typing import Literal

from statehal.errors import SpecError
from statehal.spec.base import Spec, require_positive, require_shape
from statehal.spec.dtypes import dtype_name

REPLAY = "replay"
"""Name of the extra field that is a replay ring."""


@dataclass(frozen=True)
class ConvRecurrent(Spec):
    """A slot keeps, a layer, a window of conv inputs and one recurrent state; both are one checkpoint.

    The window's fields depend on the backend's ``ConvStateLayout``; ``statehal.layout.conv_window`` builds them. An
    extra field is a further recurrent row, committed and copied as ``state`` is; but one named ``replay`` is a ring
    of ``window_rows`` rows, in which a host keeps the inputs since its checkpoint: a token's input lies in the row in
    which its conv input lies in the window, so the same cursor finds both, and a commit moves nothing.

    Attributes:
        channels: conv channels of this rank.
        width: taps of the causal convolution, 2 to 8.
        dtype: dtype of the window.
        sections: channels of each independently sharded part, such as ``q | k | v``; sums to ``channels``.
        section_heads: heads (or groups) of each section, which tensor parallelism divides as it does those of
            attention; 1: every rank keeps the section whole, such as ``B`` and ``C`` of one group beside a divided
            ``x``.
        verify_tokens: most tokens verified in one step, the certain one included (D); the window has
            ``width - 1 + D - 1`` rows.
        state: shape of the recurrent state of one layer, heads first; ``None`` where there is none (short conv).
        state_dtype: dtype of the recurrent state.
    """

    channels: int
    width: int
    dtype: str
    sections: tuple[int, ...] | None = field(default=None, kw_only=True)
    section_heads: tuple[int, ...] | None = field(default=None, kw_only=True)
    verify_tokens: int = field(default=1, kw_only=True)
    state: tuple[int, ...] | None = field(default=None, kw_only=True)
    state_dtype: str = field(default="float32", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "state_dtype", dtype_name(self.state_dtype))
        require_positive(self, channels=self.channels, verify_tokens=self.verify_tokens)
        if not isinstance(self.width, int) or self.width not in range(2, 9):
            raise SpecError(f"spec {self.name!r} has width={self.width!r}: causal conv1d is defined for 2 to 8")
        if self.sections is not None:
            object.__setattr__(self, "sections", tuple(self.sections))
            require_shape(self, "sections", self.sections)
            if sum(self.sections) != self.channels:
                raise SpecError(f"spec {self.name!r}: sections={self.sections} do not sum to channels={self.channels}")
        if self.section_heads is not None:
            object.__setattr__(self, "section_heads", tuple(self.section_heads))
            require_shape(self, "section_heads", self.section_heads)
            sections = self.sections or ()
            if len(self.section_heads) != len(sections) or any(map(mod, sections, self.section_heads)):
                raise SpecError(
                    f"spec {self.name!r} has section_heads={self.section_heads} for sections={self.sections}: expected "
                    f"one number for each, which divides its channels"
                )
        if self.state is not None:
            object.__setattr__(self, "state", tuple(self.state))
            require_shape(self, "state", self.state)
        if self.shared:
            raise SpecError(
                f"spec {self.name!r} has shared={self.shared}: a window belongs to one layer, because every layer "
                f"takes each token into it"
            )
        taken = {"conv", "state", "cursor"} & {extra.name for extra in self.extra}
        if taken:
            raise SpecError(f"spec {self.name!r} has extra fields named {sorted(taken)}, which a slot has anyway")
        for extra in self.extra:
            if extra.name == REPLAY and (
                len(extra.row_shape) < 2 or extra.row_shape[0] != self.window_rows or extra.heads > 1
            ):
                raise SpecError(
                    f"spec {self.name!r} has a replay ring of row_shape={tuple(extra.row_shape)}: expected "
                    f"({self.window_rows}, ...), a row for each of the window's, of heads=1"
                )

    @property
    def kind(self) -> Literal["tokens", "slots"]:
        return "slots"

    @property
    def window_rows(self) -> int:
        """Rows of a conv window: the history and the drafts that may be live beside it."""
        return (self.width - 1) + (self.verify_tokens - 1)
