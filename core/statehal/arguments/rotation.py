"""Arguments of norms and rotary position embedding."""

from numbers import Real

import torch
from torch import Tensor

from statehal.arguments.tensors import FLOATING, describe, require_index, require_tensor
from statehal.errors import ArgumentError

INFINITE = float("inf")


def require_weight(where: str, name: str, weight: Tensor | None, width: int, device: torch.device) -> None:
    """Refuse the weight of a norm that is not a floating ``[width]`` on the device."""
    if weight is not None:
        require_tensor(where, name, weight, (width,), FLOATING, device)


def eps_fits(eps: object) -> bool:
    """Whether it is a float that ``require_eps`` takes; ``False`` of anything else."""
    return type(eps) is float and 0.0 <= eps < INFINITE


def require_eps(where: str, eps: object) -> None:
    """Refuse what is no number of at least 0. With 0, a row of zeros has the norm NaN, as the formula says."""
    if eps_fits(eps):
        return
    if not isinstance(eps, Real) or isinstance(eps, bool) or not 0 <= float(eps) < INFINITE:
        given = repr(eps) if isinstance(eps, Real) else describe(eps)
        raise ArgumentError(f"{where}: eps is {given}: expected a finite number of at least 0")


def require_rotation(
    where: str, positions: Tensor, cos_sin: Tensor, sections: object, tokens: int, width: int, device: torch.device
) -> None:
    """Refuse shapes, dtypes and devices that do not fit.

    Args:
        where: who asks.
        positions: due are integers ``[tokens]``, or ``[3, tokens]`` with ``sections``.
        cos_sin: due is a floating ``[max_position, rope_dim]``, with an even ``rope_dim`` of at most ``width``.
        sections: ``None``, or three counts that sum to ``rope_dim/2``.
        tokens: of the call.
        width: of the heads.
        device: of the pool.
    """
    known = isinstance(cos_sin, Tensor) and cos_sin.dim() == 2
    require_tensor(
        where, "cos_sin", cos_sin, cos_sin.shape if known else ("max_position", "rope_dim"), FLOATING, device
    )
    length, rope_dim = cos_sin.shape
    if not 0 < rope_dim <= width or rope_dim % 2 or not length:
        raise ArgumentError(
            f"{where}: cos_sin is {describe(cos_sin)}: expected [max_position, rope_dim] with an even rope_dim of at "
            f"most {width}"
        )
    if sections is None:
        require_index(where, "positions", positions, (tokens,), device)
        return
    counts = sections if isinstance(sections, list | tuple) else ()
    whole = len(counts) == 3 and all(isinstance(count, int) and count >= 0 for count in counts)
    if not whole or sum(counts) != rope_dim // 2:
        raise ArgumentError(
            f"{where}: rope_sections is {sections!r}: expected three counts that sum to {rope_dim // 2}, half of the "
            f"rope_dim of cos_sin"
        )
    require_index(where, "positions", positions, (3, tokens), device)
