"""The pages of one field: as operators take them, and by token."""

from torch import Tensor

from statehal.pool import SubPool


class Pages:
    """Views of a field whose ids count ``page * page_size + place``, in the block or the page form.

    Attributes:
        form: the address form.
        dense: whether it is the block form, in which a layer is one contiguous tensor.
        fractal: whether rows are in the NZ format.
        dtype: of the rows.
        owners: a layer for each stored row: layers may share rows.
    """

    def __init__(self, sub: SubPool, name: str) -> None:
        field, kind = sub.layout.field(name), sub.layout.kinds(name)[0]
        self.form = sub.layout.form(name, kind)
        self.dense = kind == "block"
        self.owners = tuple(group[0] for group in field.layers)
        stored = [(group, sub.view(name, group[0], kind)) for group in field.layers]
        self._views = {layer: view for group, view in stored for layer in group}
        view = stored[0][1]
        self.dtype, self._size, self._where = view.dtype, sub.page_size, sub.forms.index(self.form)
        self._ids = view.shape[0] * sub.page_size
        # a fractal row is cut into pieces of 32 bytes, which lie a page of such pieces apart
        given = next((len(one.row_shape) for one in sub.spec.fields() if one.name == name), len(field.row_shape))
        self.fractal = self.dense and len(field.row_shape) > given
        self._caches = {layer: self._operand(view) for layer, view in self._views.items()} if self.dense else {}

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

    def _operand(self, view: Tensor) -> Tensor:
        if not self.fractal:
            return view
        # [pages, ps, heads, pieces, x] in the order of its memory
        return view.permute(0, 2, 3, 1, 4).flatten(1, 2)
