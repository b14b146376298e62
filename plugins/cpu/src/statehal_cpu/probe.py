"""Whether the extension is there, and which instruction set its kernels use."""

from types import ModuleType

from statehal.env import Variable
from statehal.errors import EnvError, MissingDependency
from statehal.hookspecs import Probe

ISA = Variable(
    "STATEHAL_CPU_ISA",
    "auto",
    "instruction set of the CPU kernels; auto is the best that the machine has",
    ("auto", "scalar", "neon", "avx2", "avx512", "avx512_bf16"),
)


def probe(device: str) -> Probe:
    """Ready on the CPU, where the extension loads and has the instruction set that is asked for."""
    if device.partition(":")[0] != "cpu":
        return Probe("unavailable", f"it runs on the CPU, not on {device!r}", "name the device cpu")
    try:
        native = load()
    except MissingDependency as error:
        return Probe("broken", str(error), "install statehal-cpu again where there is a compiler of C++17")
    except EnvError as error:
        reason, _, fix = str(error).removesuffix(")").partition(" (fix: ")
        return Probe("broken", reason, fix)
    return Probe("ready", details={"isa": native.isa(), "isas": ", ".join(native.usable_isas())})


def load() -> ModuleType:
    """The extension, whose kernels are of the instruction set that ``STATEHAL_CPU_ISA`` names.

    Raises:
        MissingDependency: it is not there, or does not load.
        EnvError: the variable names an instruction set that does not exist, or that this machine lacks.
    """
    try:
        from statehal_cpu import _native
    except ImportError as error:
        raise MissingDependency(f"the extension statehal_cpu._native does not load: {error}") from error
    wanted, usable = ISA.choice(), _native.usable_isas()
    if wanted not in ("auto", *usable):
        raise EnvError(
            f"{ISA.name}={wanted}: this machine's instruction sets are {', '.join(usable)} (fix: unset it or use one "
            f"of these)"
        )
    _native.use_isa(usable[-1] if wanted == "auto" else wanted)
    return _native
