"""Asking plugins for layouts, and holding the answers against the spec."""

from collections.abc import Sequence
from math import prod

from statehal.binding.asking import ask
from statehal.errors import PluginBroken
from statehal.hookspecs import ConvStateLayoutRequest, PoolLayoutRequest
from statehal.layout import ConvStateLayout, PoolLayout, conv_window
from statehal.registry import Provider
from statehal.spec import ConvRecurrent, Spec


def layout_from(providers: Sequence[Provider], spec: Spec, page_size: int, device: str) -> tuple[str, PoolLayout]:
    """The first provider that has a layout for the spec, and that layout.

    Args:
        providers: of ``statehal_conv_state_layout`` for a ``ConvRecurrent``, else of ``statehal_pool_layout``.

    Raises:
        PluginBroken: nobody answered, or the answer does not hold the spec's rows.
    """
    slots = isinstance(spec, ConvRecurrent)
    hook = "statehal_conv_state_layout" if slots else "statehal_pool_layout"
    request: object = PoolLayoutRequest(spec, page_size, device)
    if isinstance(spec, ConvRecurrent):
        request = ConvStateLayoutRequest(spec, device)
    for provider in providers:
        answer = ask(provider, hook, request)
        if answer is None:
            continue
        wanted = ConvStateLayout if slots else PoolLayout
        if not isinstance(answer, wanted):
            raise PluginBroken(
                f"plugin {provider.name!r} answered {hook} for {spec.name!r} with a {type(answer).__name__}: "
                f"expected a {wanted.__name__} (fix: return one, or None to leave it to the next provider)"
            )
        layout = conv_window(spec, answer) if isinstance(answer, ConvStateLayout) else answer
        if not slots:
            _require_rows(provider.name, spec, page_size, layout)
        return provider.name, layout
    raise PluginBroken(
        f"no plugin has a layout for {spec.name!r} on {device!r}: asked {[one.name for one in providers]}"
    )


def _require_rows(name: str, spec: Spec, page_size: int, layout: PoolLayout) -> None:
    """Refuse a layout that has other fields, layers, dtypes or sizes than the spec."""
    wanted = {field.name: (field.dtype, field.layers, prod(field.row_shape), page_size) for field in spec.fields()}
    got = {field.name: (field.dtype, field.layers, prod(field.row_shape), field.page_size) for field in layout.fields}
    if wanted != got:
        raise PluginBroken(
            f"plugin {name!r} laid out {got} for {spec.name!r}: expected {wanted}, each as (dtype, layers, elements a "
            f"row, page size)"
        )
