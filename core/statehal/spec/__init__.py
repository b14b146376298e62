"""What a model keeps, in the model's own terms: no device, no layout, no torch."""

from statehal.spec.attention import Attention, Latent
from statehal.spec.base import ExtraField, FieldSpec, Spec
from statehal.spec.dtypes import DTYPES, dtype_name, itemsize, nan_byte
from statehal.spec.recurrent import REPLAY, ConvRecurrent

__all__ = [
    "DTYPES",
    "REPLAY",
    "Attention",
    "ConvRecurrent",
    "ExtraField",
    "FieldSpec",
    "Latent",
    "Spec",
    "dtype_name",
    "itemsize",
    "nan_byte",
]
