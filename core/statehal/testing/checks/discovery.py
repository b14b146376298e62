"""What a backend says of itself, and whether it is true as far as that can be asked without an operation."""

import warnings
from contextlib import suppress

import torch
from torch._C._autograd import DeviceType

from statehal.hookspecs import CONTRACT, Probe
from statehal.spec import Attention
from statehal.testing.check import check
from statehal.testing.oracles.bytes import address, encoded
from statehal.testing.plugin import answered, loaded
from statehal.testing.target import Target
from statehal.testing.whose import explained

IMPLIED = {
    "store:": ("kv.write or kv.write_latent",),
    "scales:": ("kv.write",),
    "window:": ("conv.prepare", "conv.decode or conv.prefill or conv.verify"),
    "snapshots": ("conv.prefill",),
    "trees": ("conv.verify", "conv.commit"),
    "tracking": ("conv.commit",),
    "replay": ("conv.commit",),
    "ids64": ("kv.write or kv.rope_write or kv.write_latent or kv.move or conv.decode or conv.prefill or conv.commit",),
}
"""Methods without which a capability, by the start of its tag, means nothing."""

NEEDED = {
    "kv.write": "store:",
    "kv.rope_write": "store:",
    "kv.write_latent": "store:",
    "conv.prefill": "window:",
    "conv.decode": "window:",
    "conv.verify": "window:",
}
"""The start of a tag, of which a backend with this method claims at least one: a dtype that the method takes."""


@check("discovery")
def check_it_is_registered_under_its_name(target: Target) -> None:
    """A backend is loaded under its entry point's name, which is its own, and its contract is one that we fulfil."""
    info = loaded(target).info
    assert info.name == target.backend, f"the entry point is {target.backend!r}, BackendInfo says {info.name!r}"
    major, minor = info.contract
    assert major == CONTRACT[0] and minor <= CONTRACT[1], f"contract {info.contract}, this statehal has {CONTRACT}"  # noqa: PT018
    assert info.device_types, "it serves no type of device"


@check("discovery")
def check_its_probe_answers_for_every_device(target: Target) -> None:
    """The probe says ``ready`` for the device in use, and for every other device gives an answer and raises nothing."""
    loaded(target)
    here = target.registry.probe(target.backend, target.device)
    assert here.state == "ready", f"probe of {target.device!r}: {here.state}, {here.reason}"
    for device in _devices():
        probe = answered(target, "statehal_probe", device=device)
        assert isinstance(probe, Probe), f"probe of {device!r} gave {probe!r}"
        assert probe.state == "ready" or probe.reason, f"probe of {device!r}: {probe.state} without a reason"


@check("discovery")
def check_what_it_says_of_itself_is_stable(target: Target) -> None:
    """``statehal_backend_info`` gives equal answers whenever it is asked."""
    known = loaded(target).info
    for _ in range(2):
        again = answered(target, "statehal_backend_info")
        assert again == known, f"at discovery it said {known}, now {again}"


@check("discovery")
def check_it_has_the_methods_that_its_capabilities_imply(target: Target) -> None:
    """A capability has the methods that give it a meaning, and a method that stores claims a dtype that it takes."""
    tags = loaded(target).info.capabilities
    for tag in sorted(tags):
        for start, methods in IMPLIED.items():
            if tag.startswith(start):
                missing = [needed for needed in methods if target.offers.isdisjoint(needed.split(" or "))]
                assert not missing, (
                    f"it claims {tag!r} and does not provide {', '.join(missing)}: {explained(target, missing[0])} "
                    f"(fix: provide it, or take {tag!r} out of capabilities)"
                )
    for method, start in NEEDED.items():
        claimed = method not in target.offers or any(tag.startswith(start) for tag in tags)
        assert claimed, f"it provides {method} and claims no {start}DTYPE that it takes"


@check("discovery", needs=("kv.write",))
def check_a_write_in_inference_mode_works(target: Target) -> None:
    """A pool that is made, bound and written in ``inference_mode`` holds the rows, and can be written outside of it."""
    stored = sorted(tag.removeprefix("store:") for tag in target.info.capabilities if tag.startswith("store:"))
    dtype = next((name for name in ("float32", "bfloat16", "float16") if name in stored), "bfloat16")
    spec = Attention("kv", (3,), 1, 4, dtype)
    problem = ""
    try:
        with torch.inference_mode():
            pool = target.pool([spec], tokens=16, page_size=4)
            pages = pool.alloc(8)
            ids, writer = pool["kv"].kernel_ids(pages.token_ids()), target.binding().kv(pool["kv"])
            rows = target.on_device(torch.arange(1, 33).view(8, 1, 4).to(getattr(torch, dtype)))
            writer.write(3, ids[:4], rows[:4], rows[:4])
        outside = target.on_device(torch.arange(1, 33).view(8, 1, 4).to(getattr(torch, dtype)))
        writer.write(3, pool["kv"].kernel_ids(pages.token_ids())[4:], outside[4:], outside[4:])
    except RuntimeError as error:  # of torch: inference tensors cannot be written outside of the mode
        problem = f"{type(error).__name__}: {error}"
    assert not problem, problem
    image = target.image(pool)
    for n in range(32):
        token, dim = divmod(n, 4)
        page = pool["kv"].member.table[pages.ids[token // 4]]
        for name in ("k", "v"):
            at = address(pool["kv"].layout.field(name), 3, page, token % 4, (0, dim))
            raw = encoded(n + 1, dtype)
            found = bytes(image[at : at + len(raw)])
            where = "in inference mode" if token < 4 else "outside of inference mode"
            assert found == raw, (
                f"{name} of token {token}, written {where}: byte {at} holds {found.hex()}, not {raw.hex()}"
            )


def _devices() -> list[str]:
    """Every type of device that torch has a name for, alone and with a number; most of them are on no machine."""
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some names are old
        for name in DeviceType.__members__:
            with suppress(RuntimeError):
                found += [str(torch.device(name.lower())), str(torch.device(name.lower(), 7))]
    return found
