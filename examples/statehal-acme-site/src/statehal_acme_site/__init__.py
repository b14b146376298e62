"""A site's own ``zero_pages``, in place of that of the chosen backend.

A plugin without ``statehal_backend_info`` is no backend: it overrides. It is asked before the backend, and the methods
that its answer has are the ones that hosts get; all others stay whose they were.
"""

from statehal.hookspecs import MemoryOpsRequest, hookimpl


@hookimpl
def statehal_memory_ops(request: MemoryOpsRequest) -> object:
    if request.device != "cpu":
        return None  # this one is for the cpu
    from statehal_acme_site.memory import SiteMemoryOps

    return SiteMemoryOps()
