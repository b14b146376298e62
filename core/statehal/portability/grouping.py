"""How a model's state is cut into parts, decided by the model alone."""

from dataclasses import dataclass

from statehal.errors import ArgumentError
from statehal.portability.sections import Specs, sections, unwrap


@dataclass(frozen=True)
class SubPoolGrouping:
    """The part sizes of one sub-pool.

    Attributes:
        layers: layers of a layer group, in the order of the spec; the last group may have fewer.
        head_groups: how many groups the heads of its sections are cut into, evenly; those of a section that this does
            not divide, such as the few groups of ``B`` and ``C`` beside the heads of ``x``, are cut into fewer.
    """

    name: str
    layers: int
    head_groups: int

    def groups(self, heads: int) -> int:
        """Groups of a section of that many heads.

        Examples:
            >>> [SubPoolGrouping("ssm", 1, 16).groups(heads) for heads in (80, 32, 8, 6)]
            [16, 16, 8, 6]
        """
        return _largest_divisor(heads, self.head_groups)


@dataclass(frozen=True)
class Grouping:
    """Sizes of objects and parts: they belong to the namespace, so they never depend on a topology.

    Attributes:
        object_tokens: tokens of a span; every page size that divides it shares whole pages with it, others work too.
        subpools: one entry a spec.
    """

    object_tokens: int
    subpools: tuple[SubPoolGrouping, ...]

    @classmethod
    def of(cls, specs: Specs, *, object_tokens: int = 256, layers: int = 1, head_groups: int = 16) -> "Grouping":
        """Derive the grouping from the specs of the whole model.

        Args:
            object_tokens: tokens of a span.
            layers: layers of a group. More make fewer and larger parts, and refuse pipelines that cut a group.
            head_groups: most groups; the largest divisor of the most heads counts. Fewer make fewer and larger parts,
                and refuse tensor parallelism that cuts a group.
        """
        for name, value in (("object_tokens", object_tokens), ("layers", layers), ("head_groups", head_groups)):
            if not isinstance(value, int) or value < 1:
                raise ArgumentError(f"{name}={value!r} of a grouping: expected an integer of at least 1")
        entries = []
        for spec in unwrap(specs):
            heads = max(section.heads for section in sections(spec))
            entries.append(SubPoolGrouping(spec.name, layers, _largest_divisor(heads, head_groups)))
        return cls(object_tokens, tuple(entries))

    def of_subpool(self, name: str) -> SubPoolGrouping:
        """The entry of a sub-pool.

        Raises:
            ArgumentError: the grouping was made from other specs.
        """
        for entry in self.subpools:
            if entry.name == name:
                return entry
        raise ArgumentError(f"no sub-pool {name!r} in this grouping: it has {[one.name for one in self.subpools]}")


def _largest_divisor(number: int, most: int) -> int:
    return max(one for one in range(1, most + 1) if number % one == 0)
