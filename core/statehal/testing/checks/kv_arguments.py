"""Counts and kinds of sub-pools that ``move`` and writes refuse, with nothing stored."""

from typing import Any

import torch
from hypothesis import strategies as st

from statehal.errors import ArgumentError, Unsupported
from statehal.spec import Latent
from statehal.testing.check import check
from statehal.testing.kv.arguments import ANY_WRITE, several
from statehal.testing.kv.misfits import Misfit, refuses
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_PLAIN, PADDING, PAGES, PLAIN, Setting, claimed
from statehal.testing.target import Target


def _either(target: Target) -> Any:
    tags = claimed(target, PLAIN)
    return st.booleans().flatmap(lambda latent: several(tags, latent=latent))


@check("kv_arguments", needs=("kv.move", ANY_PLAIN), cases=_either, features=(*PAGES, *PADDING))
def check_move_takes_as_many_sources_as_targets(target: Target, case: Setting) -> None:
    """A move of tokens to fewer or more is an ArgumentError, before a byte is stored."""
    scene = Scene(target, case)
    ids = scene.ids
    sources = scene.pick(tuple((token + 1) % 16 for token in case.tokens))
    short = {"a token less": slice(1, None), "one token": slice(0, 1), "no token": slice(0, 0)}
    misfits = [Misfit(f"{what} as src", {"src": sources[part]}, ("dst", "src")) for what, part in short.items()]
    misfits += [Misfit(f"{what} as dst", {"dst": ids[part]}, ("dst", "src")) for what, part in short.items()]
    refuses(scene, "kv.move", {"dst": ids, "src": sources}, misfits)


@check("kv_arguments", needs=(ANY_WRITE, ANY_PLAIN), cases=_either, features=(*PAGES, *PADDING))
def check_writes_of_another_kind_are_refused(target: Target, case: Setting) -> None:
    """A write_latent to K and V, or K and V to latent rows, is an error of statehal, before a byte is stored."""
    scene = Scene(target, case)
    latent = isinstance(case.spec, Latent)
    shape = (len(case.tokens), 1, 12) if latent else (len(case.tokens), 1, 4)
    rows = target.on_device(torch.ones(shape, dtype=getattr(torch, case.spec.dtype)))
    positions, table = target.on_device(torch.arange(shape[0])), target.on_device(torch.ones(9, 4))
    others: dict[str, tuple[Any, ...]] = {"kv.write_latent": (rows[:, 0], rows[:, 0])}
    if latent:
        others = {"kv.write": (rows, rows), "kv.rope_write": (rows, rows, rows, positions, table)}
    before = scene.image()
    for method in target.offers & others.keys():
        name = method.removeprefix("kv.")
        what = f"{name} to a sub-pool of {'latent rows' if latent else 'K and V'}"
        try:
            getattr(scene.writer, name)(case.layer, scene.ids, *others[method])
        except (ArgumentError, Unsupported):
            pass
        except Exception as error:
            raise AssertionError(f"{what} raised {type(error).__name__}: {error}") from error
        else:
            raise AssertionError(f"{what} was taken")
        scene.compare(before, f"after {what} was refused")
