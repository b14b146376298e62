"""Every error that statehal raises; one class a situation, each with a line in ``docs/errors.md``.

Texts say what happened, where, what was expected and, in ``(fix: ...)``, what to do.
"""


class StatehalError(Exception):
    """Base of every error raised by statehal."""


class ArgumentError(StatehalError, ValueError):
    """An argument has the wrong shape, dtype, device or value."""


class EnvError(StatehalError, ValueError):
    """A ``STATEHAL_*`` environment variable holds a value that cannot be read."""


class MissingDependency(StatehalError, ImportError):
    """A part of statehal needs a distribution that is not installed."""


class Unsupported(StatehalError, NotImplementedError):
    """The provider of an operation does not offer what was asked of it."""


class SpecError(StatehalError, ValueError):
    """A model-state spec contradicts itself."""


class LayoutError(StatehalError, ValueError):
    """A layout is not an affine map that its fields fit into, or lacks an address form."""


class AddressBoundError(LayoutError):
    """Ids of a form in use would pass the largest value of their integer type."""


class PlanError(StatehalError, ValueError):
    """A budget, page size and set of specs admit no plan."""


class TopologyError(StatehalError, ValueError):
    """A topology does not divide a model's state, or cuts a part of it."""


class IdError(StatehalError):
    """Base of errors about ids."""


class WrongIdSpace(IdError, TypeError):
    """Ids of one space were given where another space is read."""


class StaleIds(IdError):
    """Ids were translated before a compaction moved the pages they name."""


class StepError(StatehalError):
    """A step of a conv sub-pool has no commit, or two, or not all of its layers; found where checking is on."""


class PoolError(StatehalError):
    """Base of errors of a pool's accounting; the pool is left as it was."""


class PoolExhausted(PoolError):
    """Fewer pages can be had now than were asked for."""


class DoubleFree(PoolError):
    """A page was given back that its holder no longer holds."""


class UseAfterFree(PoolError):
    """A handle was used whose page has been freed and belongs to somebody else now."""


class SinkPage(PoolError):
    """Page 0, the sink, was freed, retained or evicted."""


class PageOutOfRange(PoolError):
    """A page id lies outside its id space."""


class ForeignPages(PoolError):
    """A handle was given to a pool or sub-pool that did not make it."""


class StepsInFlight(PoolError):
    """Compaction was asked for while a step may still use the present physical ids."""


class PoolCorrupt(PoolError):
    """The pool's accounting contradicts itself."""


class ForkedProcess(PoolError):
    """A pool made before ``os.fork`` was used in the child."""


class StoreError(StatehalError):
    """A directory cannot be opened or maintained as a store; a part that is missing or damaged is an ``Outcome``."""


class OffloadError(StatehalError):
    """An offloader was used after it was closed, or on another thread than its pool's."""


class BackendError(StatehalError):
    """Base of errors about discovery and selection."""


class UnknownBackend(BackendError):
    """No backend of that name is installed."""


class BackendNotReady(BackendError):
    """The backend that was asked for cannot run on that device."""


class AmbiguousBackend(BackendError):
    """Two ready backends have the same priority."""


class BackendConflict(BackendError):
    """Two distributions claim one backend name."""


class ContractMismatch(BackendError):
    """A plugin was written for a contract that this core does not fulfil."""


class PluginBroken(BackendError):
    """A plugin failed while it was loaded, registered or asked."""
