"""Layout is data: affine byte maps, the address forms that follow from them, and their constructors. No torch."""

from statehal.layout.constructors import layer_major, nz, page_major, token_major, x_packed
from statehal.layout.conv_state import ConvStateLayout
from statehal.layout.conv_window import conv_window
from statehal.layout.field import FieldLayout
from statehal.layout.forms import AddressForm, FormKind, ViewGeometry, address_form, view_geometry
from statehal.layout.pool_layout import INT32_IDS, PoolLayout

__all__ = [
    "INT32_IDS",
    "AddressForm",
    "ConvStateLayout",
    "FieldLayout",
    "FormKind",
    "PoolLayout",
    "ViewGeometry",
    "address_form",
    "conv_window",
    "layer_major",
    "nz",
    "page_major",
    "token_major",
    "view_geometry",
    "x_packed",
]
