"""What is compiled: a launch as Triton's own JIT would specialise it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from statehal_triton_ops.compile.discovery import name_of
from statehal_triton_ops.compile.scenario import Scenario
from statehal_triton_ops.compile.targets import TARGETS, Target
from statehal_triton_ops.launch import Launch, recorded


@dataclass(frozen=True)
class Specialised:
    """A launch for one of Triton's backends; picklable, so that another process can compile it.

    Attributes:
        module, function: where the kernel is found.
        signature: type of each argument by name: ``"*bf16"``, ``"i32"``, ``"constexpr"``, tuples of them.
        constants: values of the compile-time arguments by position.
        attributes: what is known of the others by position: divisibility, range of a pointer.
        num_warps: warps a program.
    """

    module: str
    function: str
    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], Any]
    num_warps: int

    @property
    def key(self) -> str:
        """Equal for equal compilations."""
        return repr((self.module, self.function, self.signature, self.constants, self.attributes, self.num_warps))


@dataclass
class Row:
    """A row of the grid: one compilation for all targets of some families.

    Attributes:
        kernel: ``module.name``.
        backend: ``cuda`` or ``hip``.
        specialised: what is compiled.
        scenarios: all that launch it so.
        families: of targets, those that launch it so.
        quick: some of the scenarios belongs to the quick subset.
        scattered: all of them write rows whose elements lie apart.
    """

    kernel: str
    backend: str
    specialised: Specialised
    scenarios: list[str] = field(default_factory=list)
    families: list[str] = field(default_factory=list)
    quick: bool = False
    scattered: bool = True


def rows(scenarios: Iterable[Scenario], families: Iterable[str]) -> list[Row]:
    """Run scenarios with launches recorded, and specialise every launch for each family of targets.

    Equal launches become one row, also those of two families of one of Triton's backends.
    """
    made: dict[tuple[str, str], Row] = {}
    backends = {family: _of_family(family).backend for family in families}
    for scenario in scenarios:
        for family, backend in backends.items():
            with recorded() as launches:
                try:
                    scenario.run(family)
                except Exception as error:
                    error.add_note(f"in scenario {scenario.name!r} for {family}")
                    raise
            for launch in launches:
                specialised = specialise(launch, family)
                row = made.setdefault((backend, specialised.key), Row(name_of(launch.kernel), backend, specialised))
                if scenario.name not in row.scenarios:
                    row.scenarios.append(scenario.name)
                if family not in row.families:
                    row.families.append(family)
                row.quick |= scenario.quick
                row.scattered &= scenario.scattered
    return list(made.values())


def _of_family(family: str) -> Target:
    return next(target for target in TARGETS.values() if target.family == family)


def specialise(launch: Launch, family: str) -> Specialised:
    """Types, constants and attributes of a launch: those which Triton's JIT finds for its arguments."""
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    kernel = launch.kernel
    compiler = make_backend(_of_family(family).triton())
    binder = create_function_from_signature(kernel.signature, kernel.params, compiler)
    given = dict(launch.constants, num_warps=launch.num_warps, enable_fp_fusion=False)
    bound, specialization, _ = binder(*launch.arguments, **given)
    _, signature, constants, attributes = kernel._pack_args(compiler, given, bound, specialization, None)
    return Specialised(kernel.fn.__module__, kernel.fn.__name__, signature, constants, attributes, launch.num_warps)
