"""The limits, and what passes them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from statehal_triton_ops.compile.measure import Measures

NARROW_SHARE = 0.25
"""Of the bytes that a program moves: what may move in accesses under 8 bytes (ids, scales, lengths)."""

WIDTHS = ("bulk_width", "narrow_share")
"""Measures of how wide accesses are."""

NARROW_BYTES = 256
"""What a program may move so in any case: one that moves cursors alone moves little."""


@dataclass(frozen=True)
class Limit:
    """A bound of a measure.

    Attributes:
        measure: an attribute of ``Measures``.
        least, most: the bounds; ``None``: none on that side.
        unit: for the text.
        why: what goes wrong past it.
    """

    measure: str
    least: float | None
    most: float | None
    unit: str
    why: str

    def passed_by(self, measures: Measures, *, scattered: bool = False) -> bool:
        """Whether the measure lies outside; the widths of accesses are not judged where elements lie apart."""
        value = getattr(measures, self.measure)
        if scattered and self.measure in WIDTHS:
            return False
        if self.measure == "bulk_width" and value == 0:
            return False  # nothing is moved in bulk
        if self.measure == "narrow_share" and measures.narrow_bytes <= NARROW_BYTES:
            return False
        return (self.least is not None and value < self.least) or (self.most is not None and value > self.most)

    def __str__(self) -> str:
        return f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"


LIMITS = (
    Limit("spills", None, 0, "spilled registers", "registers go to memory and back"),
    Limit("scratch_bytes", None, 0, "bytes of local memory a thread", "each access goes to device memory"),
    Limit("bulk_width", 8, None, "bytes an access", "bulk data moves in pieces (a lost divisibility hint?)"),
    Limit("narrow_share", None, NARROW_SHARE, "of the bytes moved", "too much moves in accesses under 8 bytes"),
    Limit("half_products", None, 0, "16-bit multiplications", "products are float32: widen before multiplying"),
    Limit("word_products", None, 0, "32-bit products in addresses", "a large pool overflows them: widen first"),
    Limit("address_bits", 64, None, "bits of address", "memory past 4 GiB is out of reach"),
)


@dataclass(frozen=True)
class Fault:
    """One limit passed, or a kernel that cannot be judged.

    Attributes:
        kernel: ``module.name``.
        target: its name; empty where it concerns all.
        measure: name of the measure, ``compiles`` or ``row``.
        value, limit: what was found and what is allowed, as text.
        detail: why it matters, where it is.
        scenario: the first that launches it so; empty where none does.
    """

    kernel: str
    target: str
    measure: str
    value: str
    limit: str
    detail: str
    scenario: str = ""

    def __str__(self) -> str:
        where = f" for {self.target}" if self.target else ""
        scenario = f" [{self.scenario}]" if self.scenario else ""
        return f"{self.kernel}{where}: {self.measure} is {self.value}, limit {self.limit}: {self.detail}{scenario}"


def judge(measures: Measures, kernel: str, target: str, scenario: str, *, scattered: bool = False) -> Iterator[Fault]:
    """Every limit that a kernel passes."""
    for limit in LIMITS:
        if limit.passed_by(measures, scattered=scattered):
            value: Any = getattr(measures, limit.measure)
            places = measures.places.get(limit.measure, [])
            detail = "; ".join([limit.why, *places[:3]]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
            text = f"{value:.3g} {limit.unit}" if isinstance(value, float) else f"{value} {limit.unit}"
            yield Fault(kernel, target, limit.measure, text, str(limit), detail, scenario)


def not_compiled(kernel: str, target: str, scenario: str, error: str) -> Fault:
    """Triton, LLVM or ptxas refused it."""
    return Fault(kernel, target, "compiles", "false", "true", error, scenario)


def without_row(kernel: str) -> Fault:
    """No scenario launches it."""
    detail = "no scenario launches this kernel, so that nothing is known of it (fix: add one to compile/scenarios/)"
    return Fault(kernel, "", "row", "missing", "at least 1", detail)
