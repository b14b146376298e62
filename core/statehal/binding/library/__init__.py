"""``compile_safe=True``: merged methods as ``torch.library`` operators, the same for every backend.

A method of the contract becomes two parts. The wrapper runs where the host calls it, is traced by ``torch.compile``
and checks the ids; the operator is a node of the graph whose declared mutation is the pool's whole buffer, so updates
of any sub-pool keep their order and none is dropped. When the graph runs, the operator calls the merged method.
"""

from statehal.binding.library.bind import compile_safe

__all__ = ["compile_safe"]
