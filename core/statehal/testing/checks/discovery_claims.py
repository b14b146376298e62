"""Whether a backend itself serves the sub-pools that its capabilities are about."""

from collections.abc import Iterator

from statehal.hookspecs.capabilities import REPLAY, SCALES
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec
from statehal.spec.dtypes import itemsize
from statehal.testing.check import check
from statehal.testing.plugin import loaded
from statehal.testing.target import Target
from statehal.testing.whose import HOOKS, hook_of, own, providers, why


def _subpools(target: Target) -> Iterator[tuple[str, Spec]]:
    """Each claimed tag that is about a kind of sub-pool, with a spec of one."""
    tags = target.info.capabilities
    stores = sorted(tag.removeprefix("store:") for tag in tags if tag.startswith("store:"))
    for dtype in stores:
        yield f"store:{dtype}", Attention("kv", (0,), 1, 8, dtype)
        yield f"store:{dtype}", Latent("mla", (1,), 8, 8, dtype)
        if SCALES in tags and itemsize(dtype) == 1:
            yield SCALES, Attention("kv", (0,), 1, 8, dtype, scales="per_token_head")
    windows = sorted(tag.removeprefix("window:") for tag in tags if tag.startswith("window:"))
    for dtype in windows:
        yield f"window:{dtype}", ConvRecurrent("conv", (2,), 16, 4, dtype, verify_tokens=2)
    for dtype in (windows or ["bfloat16"]) if REPLAY in tags else []:
        ring = ExtraField(REPLAY, (4, 3), "float32")
        yield REPLAY, ConvRecurrent("conv", (2,), 16, 4, dtype, verify_tokens=2, extra=(ring,))


def _unserved(target: Target, tag: str, spec: Spec, needed: set[str]) -> Iterator[str]:
    missing = needed - own(target, spec)
    for hook in HOOKS.values():
        names = sorted(name for name in missing if hook_of(name) == hook)
        if names:
            by = ", ".join(dict.fromkeys(providers(target, spec)[name] for name in names))
            done = f"{', '.join(names)} {'are' if names[1:] else 'is'} done by {by}"
            fix = f"take {tag!r} out of capabilities, or answer"
            yield f"it claims {tag!r}, and {why(target, names, spec)}: {done} (fix: {fix})"


def _silent(target: Target, kind: str, found: set[str]) -> Iterator[str]:
    """Hooks that the backend implements and that gave nothing for any sub-pool of a kind."""
    for name in (f"layout.{kind}", "kv" if kind == "tokens" else "conv"):
        hook = HOOKS[name]
        implemented = any(one.name == target.backend for one in target.registry.providers(hook, target.backend))
        if implemented and not any(hook_of(one) == hook for one in found):
            yield f"its {hook} answered None for every sub-pool that it claims (fix: return an answer, or take it out)"


@check("discovery")
def check_it_serves_what_it_claims(target: Target) -> None:
    """What a backend does for sub-pools, layouts and methods, it does itself for every sub-pool that it claims."""
    tags = loaded(target).info.capabilities
    subpools = list(_subpools(target))
    needed: dict[type[Spec], set[str]] = {}
    kinds: dict[str, set[str]] = {}
    for _, spec in subpools:
        mine = own(target, spec)
        needed.setdefault(type(spec), set()).update(mine)
        kinds.setdefault(spec.kind, set()).update(mine)
    lines = [line for kind, found in kinds.items() for line in _silent(target, kind, found)]
    unserved = ((tag, type(spec), list(_unserved(target, tag, spec, needed[type(spec)]))) for tag, spec in subpools)
    first: dict[tuple[str, type[Spec]], list[str]] = {}
    for tag, kind_of, found_here in unserved:
        if found_here:  # of the scales beside each dtype, say, one will do
            first.setdefault((tag, kind_of), found_here)
    lines += [line for some in first.values() for line in some]
    if SCALES in tags and not any(tag == SCALES for tag, _ in subpools):
        lines.append(f"it claims {SCALES!r} and no store of fp8 or int8, which alone have scales (fix: claim one)")
    assert not lines, "\n".join(lines)
