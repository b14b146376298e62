"""The pages of one field: as operators take them, and by token."""

from torch import Tensor

from statehal.pool import SubPool
from statehal_ascend_npu.layouts import PIECE


class Pages:
    """Views of a field whose ids count ``page * page_size + place``, in the block or the page form.

    Attributes:
        form: the address form.
        dense: whether a layer is what operators take: one contiguous tensor of pages, in the block form.
        fractal: whether it is dense, and its rows are in the NZ format.
        dtype: of the rows.
        owners: a layer for each stored row: layers may share rows.
    """

    def __init__(self, sub: SubPool, name: str) -> None:
        field, kind = sub.layout.field(name), sub.layout.kinds(name)[0]
        self.form = sub.layout.form(name, kind)
        self.owners = tuple(group[0] for group in field.layers)
        stored = [(group, sub.view(name, group[0], kind)) for group in field.layers]
        self._views = {layer: view for group, view in stored for layer in group}
        view = stored[0][1]
        self.dtype, self._size, self._where = view.dtype, sub.page_size, sub.forms.index(self.form)
        self._ids = view.shape[0] * sub.page_size
        # a fractal row is cut into pieces, which lie a page of such pieces apart
        given = next((len(one.row_shape) for one in sub.spec.fields() if one.name == name), len(field.row_shape))
        cut = len(field.row_shape) > given
        # [pages, ps, heads, pieces, x] in the order of its memory
        caches = {layer: one.movedim(1, -2) if cut else one for layer, one in self._views.items()}
        whole = kind == "block" and all(one.is_contiguous() for one in caches.values())
        self.dense = whole and (not cut or view.shape[-1] * view.element_size() == PIECE)
        self.fractal = self.dense and cut
        self._caches = {layer: one.flatten(1, -3) if cut else one for layer, one in caches.items() if self.dense}

    def find(self, ids: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Which ids name a token's row, bool ``[tokens]``, and the ids with the sink's first row in place of others."""
        mine = ids[self._where].reshape(-1)
        live = (mine >= self._size) & (mine < self._ids)
        return live, mine.where(live, 0)

    def cache(self, layer: int) -> Tensor:
        """The layer for an operator: ``[pages, page_size, *row]``, or ``[pages, pieces, page_size, x]`` if fractal."""
        return self._caches[layer]

    def store(self, layer: int, ids: Tensor, rows: Tensor) -> None:
        """Write ``rows`` ``[tokens, *row]`` at ids of ``find``, by torch."""
        view = self._views[layer]
        view[ids.div(self._size, rounding_mode="floor"), ids.remainder(self._size)] = rows.reshape(-1, *view.shape[2:])

    def load(self, layer: int, ids: Tensor) -> Tensor:
        """Read rows ``[tokens, *row]`` at ids of ``find``."""
        return self._views[layer][ids.div(self._size, rounding_mode="floor"), ids.remainder(self._size)]
