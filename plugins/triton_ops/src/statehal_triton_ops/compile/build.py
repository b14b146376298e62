"""One compilation, in a cache directory of its own."""

import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from statehal_triton_ops.compile.rows import Specialised
from statehal_triton_ops.compile.targets import Target
from statehal_triton_ops.launch import compile_options

# As the launcher compiles, and whatever the user's own environment says.
ENVIRONMENT = {"TRITON_DEFAULT_FP_FUSION": "0", "TRITON_ALWAYS_COMPILE": "0"}


@dataclass(frozen=True)
class Compiled:
    """What Triton made.

    Attributes:
        ttir, ttgir, llir: its intermediate languages, as text.
        assembly: PTX, or AMD's assembly.
        binary: cubin or hsaco.
        shared_bytes: shared memory a program.
        threads: threads a program.
    """

    ttir: str
    ttgir: str
    llir: str
    assembly: str
    binary: bytes
    shared_bytes: int
    threads: int


@contextmanager
def own_cache() -> Iterator[None]:
    """Within it Triton's cache is a temporary directory, removed afterwards, and the environment is ours."""
    with tempfile.TemporaryDirectory(prefix="statehal-compile-") as folder:
        ours = ENVIRONMENT | {"TRITON_CACHE_DIR": folder}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def build(specialised: Specialised, target: Target) -> Compiled:
    """Compile for a target; no device is needed. Call it within ``own_cache``.

    Raises:
        Exception: whatever Triton, LLVM or ptxas raise.
    """
    import triton

    kernel = getattr(importlib.import_module(specialised.module), specialised.function)
    source = triton.compiler.ASTSource(kernel, specialised.signature, specialised.constants, specialised.attributes)
    options = {"num_warps": specialised.num_warps} | compile_options(nvidia=target.backend == "cuda")
    made = triton.compile(source, target=target.triton(), options=options)
    text, binary = ("ptx", "cubin") if target.backend == "cuda" else ("amdgcn", "hsaco")
    return Compiled(
        made.asm["ttir"],
        made.asm["ttgir"],
        made.asm["llir"],
        made.asm[text],
        made.asm[binary],
        made.metadata.shared,
        specialised.num_warps * target.warp_size,
    )
