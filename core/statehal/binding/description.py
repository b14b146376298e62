"""What a binding is made of, for people."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Description:
    """Which plugin does what.

    Attributes:
        device: where it was bound.
        backend: what was chosen.
        reason: why.
        layouts: by sub-pool, the plugin that laid it out; empty without a pool.
        methods: by operation (``"memory.translate"``, ``"full: kv.write"``) the plugin that provides it.
        translated: by writer (``"full: kv"``) that is given virtual ids, the plugin that translates them at each call.
        details: what the backend's probe found, such as the instruction set of its kernels.
    """

    device: str
    backend: str
    reason: str
    layouts: Mapping[str, str]
    methods: Mapping[str, str]
    translated: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Operations that the reference backend does because the chosen backend lacks them."""
        if self.backend == "reference":
            return ()
        return tuple(name for name, provider in self.methods.items() if provider == "reference")

    def __str__(self) -> str:
        lines = [f"backend {self.backend!r} on {self.device}: {self.reason}"]
        lines += [f"  layout of {name}: {provider}" for name, provider in self.layouts.items()]
        lines += [f"  {name}: {self._steps(name)}{provider}" for name, provider in self.methods.items()]
        if self.fallbacks:
            lines.append(f"  done by the reference because {self.backend!r} lacks them: {', '.join(self.fallbacks)}")
        return "\n".join(lines)

    def _steps(self, name: str) -> str:
        """What is done before a method."""
        translator = self.translated.get(name.rpartition(".")[0])
        return "" if translator is None else f"translate by {translator}, then by "
