"""AMD's processors: the waves that kernels are tuned for, and the fp8 formats of their matrix instructions."""

from dataclasses import dataclass
from typing import Any

from statehal.env import Variable, interpreted
from statehal.errors import EnvError, Unsupported


@dataclass(frozen=True)
class Target:
    """A processor, or a family of them that run the same code.

    Attributes:
        name: as compilers call it: ``gfx942``.
        wave: threads that run in step.
        fp8: dtypes of fp8 that its software expects, that of more mantissa first.
        native: whether it has instructions for them; others compute with fp8 by integers, in whichever format.
    """

    name: str
    wave: int
    fp8: tuple[str, str]
    native: bool


FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
OCP = ("float8_e4m3fn", "float8_e5m2")

TARGETS = {
    target.name: target
    for target in (
        Target("gfx90a", 64, FNUZ, native=False),
        Target("gfx942", 64, FNUZ, native=True),
        Target("gfx950", 64, OCP, native=True),
        Target("gfx1100", 32, OCP, native=False),
        Target("gfx1201", 32, OCP, native=True),
    )
}
"""What the kernels are compiled for ahead of time."""

FAMILIES = {"gfx110": "gfx1100", "gfx115": "gfx1100", "gfx120": "gfx1201"}
"""By the beginning of a processor's name, the target that it is like."""

ARCH = Variable(
    "STATEHAL_HIP_ARCH",
    "",
    "the target whose tile sizes and fp8 formats are used where Triton interprets kernels (gfx942 if unset); on a GPU "
    "it may only say what the GPU is",
    tuple(TARGETS),
)


def named(name: str) -> Target:
    """The target of a processor's name as a driver gives it, such as ``gfx942:sramecc+:xnack-``.

    Raises:
        Unsupported: no kernel has been compiled for any processor like it.
    """
    plain = name.partition(":")[0]
    found = TARGETS.get(plain) or TARGETS.get(FAMILIES.get(plain[:6], ""))
    if found is None:
        raise Unsupported(
            f"{plain!r} is like none of the targets that kernels are compiled for: {', '.join(TARGETS)} (fix: use a "
            f"GPU of one of them)"
        )
    return found


def target_of(device: str) -> Target:
    """The target of a device, or of ``STATEHAL_HIP_ARCH`` where kernels are interpreted.

    Raises:
        EnvError: the variable names no target, or not that of the GPU.
        Unsupported: as of ``named``.
        RuntimeError: torch finds no such GPU.
    """
    asked = ARCH.choice() if ARCH.text() else ""
    if interpreted():
        return TARGETS[asked or "gfx942"]
    found = named(properties(device).gcnArchName)
    if asked not in ("", found.name):
        raise EnvError(
            f"{ARCH.name}={asked!r}: {device!r} is a {found.name} (fix: unset it; it chooses a target only where "
            f"TRITON_INTERPRET=1)"
        )
    return found


def properties(device: str) -> Any:
    """What torch knows of a GPU; the only question that is put to it."""
    import torch

    return torch.cuda.get_device_properties(device)
