"""Facts about a conv window that a backend decides."""

from dataclasses import dataclass
from typing import Literal

from statehal.errors import LayoutError
from statehal.layout.forms import FormKind


@dataclass(frozen=True)
class ConvStateLayout:
    """Order, padding and commit protocol of the conv windows of a sub-pool.

    Attributes:
        window_order: ``"rows_first"`` stores ``[window, channels]``, ``"channels_first"`` ``[channels, window]``.
        channel_multiple: channels are padded up to a multiple of this.
        protocol: ``"ring"``: live rows start at the cursor and wrap; ``"offset"``: every step rewrites the window from
            row 0 and the cursor says where the live rows start; ``"rollback"``: live rows always end the window.
        forms: address forms in use for the windows; the other fields of a slot use the page form.
        align: every field of a layer starts at a multiple of this many bytes.
    """

    window_order: Literal["rows_first", "channels_first"] = "rows_first"
    channel_multiple: int = 1
    protocol: Literal["ring", "offset", "rollback"] = "ring"
    forms: tuple[FormKind, ...] = ("page",)
    align: int = 1

    def __post_init__(self) -> None:
        if self.window_order not in ("rows_first", "channels_first"):
            raise LayoutError(f"window_order={self.window_order!r}: expected 'rows_first' or 'channels_first'")
        if self.protocol not in ("ring", "offset", "rollback"):
            raise LayoutError(f"protocol={self.protocol!r}: expected 'ring', 'offset' or 'rollback'")
        if self.channel_multiple < 1 or self.align < 1:
            raise LayoutError(f"channel_multiple={self.channel_multiple}, align={self.align}: expected at least 1")
        object.__setattr__(self, "forms", tuple(self.forms))

    def padded(self, channels: int) -> int:
        """Channels that are stored for that many channels."""
        return -(-channels // self.channel_multiple) * self.channel_multiple
