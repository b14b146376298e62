"""From merged methods to those that ``torch.compile`` may see."""

from statehal.binding.library.conv_methods import LibraryCausalConv1d
from statehal.binding.library.handles import Handle
from statehal.binding.library.kv_methods import LibraryKVWriter
from statehal.binding.library.operators import register
from statehal.binding.merge import BoundMethods, wrapped
from statehal.pool import SubPool


def compile_safe(bound: BoundMethods, sub: SubPool) -> BoundMethods:
    """The same methods as ``torch.library`` operators; ``prepare`` belongs outside of graphs and stays as it is."""
    register()
    if sub.spec.kind == "tokens":
        return wrapped(bound, LibraryKVWriter(Handle(sub, bound, "tokens")))
    return wrapped(bound, LibraryCausalConv1d(Handle(sub, bound, "pages")))
