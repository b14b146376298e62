"""What a binding is made of, for people."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """Which plugin does what.

    Attributes:
        device: where it was bound.
        backend: what was chosen.
        reason: why.
        layouts: by sub-pool, the plugin that laid it out; empty without a pool.
        methods: by operation (``"memory.translate"``, ``"full: kv.write"``) the plugin that provides it.
    """

    device: str
    backend: str
    reason: str
    layouts: Mapping[str, str]
    methods: Mapping[str, str]

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Operations that the reference backend does because the chosen backend lacks them."""
        if self.backend == "reference":
            return ()
        return tuple(name for name, provider in self.methods.items() if provider == "reference")

    def __str__(self) -> str:
        lines = [f"backend {self.backend!r} on {self.device}: {self.reason}"]
        lines += [f"  layout of {name}: {provider}" for name, provider in self.layouts.items()]
        lines += [f"  {name}: {provider}" for name, provider in self.methods.items()]
        if self.fallbacks:
            lines.append(f"  done by the reference because {self.backend!r} lacks them: {', '.join(self.fallbacks)}")
        return "\n".join(lines)
