"""What a model keeps, in the model's own terms: no device, no layout, no torch."""

from statehal.spec.attention import Attention, Latent
from statehal.spec.base import ExtraField, FieldSpec, Spec
from statehal.spec.dtypes import DTYPES, dtype_name, itemsize, nan_byte
from statehal.spec.recurrent import ConvRecurrent

__all__ = [
    "DTYPES",
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
