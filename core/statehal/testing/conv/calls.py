"""A right call of every conv method, with each optional argument that a backend claims."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from statehal.hookspecs.capabilities import SNAPSHOTS, TRACKING, TREES
from statehal.testing.conv.rig import Rig

REQUESTS = 3


@dataclass(frozen=True)
class Call:
    """A method and arguments that it takes.

    Attributes:
        name: the method, then words for what is special.
        given: the arguments, by name.
    """

    name: str
    run: Callable[..., Any]
    given: Mapping[str, Any]

    @property
    def method(self) -> str:
        """The first word of the name."""
        return self.name.split()[0]

    def __call__(self, **other: Any) -> Any:
        """Run it with other values of some arguments."""
        return self.run(**{**self.given, **other})


def slots_of(drafts: int) -> int:
    """How many slots the calls name: those of the step, as many to read or save into, and one a token."""
    return REQUESTS * (2 + drafts)


def calls(rig: Rig) -> list[Call]:
    """Of the methods that the backend provides, on the first layer of a rig of ``slots_of`` slots."""
    conv, offers, drafts, layer = rig.conv, rig.target.offers, rig.spec.verify_tokens, rig.spec.layers[0]
    slots, more = rig.pick([1, 2, 3]), rig.pick([4, 5, 6])
    states = rig.pick([*range(7, 7 + REQUESTS * drafts)]).reshape(REQUESTS, drafts)
    ones, flags = rig.ints([1] * REQUESTS), rig.bools([True, False, True])
    path = rig.ints([*range(drafts)] * REQUESTS).reshape(REQUESTS, drafts)

    def x(tokens: int) -> Tensor:
        return rig.target.on_device(rig.values(tokens, rig.spec.channels))

    prompts: dict[str, Any] = {"layer": layer, "x": x(5), "query_start_loc": rig.ints([0, 2, 3, 5]), "slots": slots}
    full: dict[str, Any] = {"layer": layer, "x": x(REQUESTS * drafts), "slots": slots}
    step: dict[str, Any] = {"slots": slots, "accepted": rig.ints([drafts] * REQUESTS)}
    points = rig.ints([0, 1, 2]), ones, more
    tracked = {"state_slots": states, "track_slots": more, "track_accepted": ones}
    made = [
        Call("prefill", conv.prefill, prompts),
        Call("prefill after other slots", conv.prefill,
             {**prompts, "has_initial_state": flags, "initial_slots": more}),
        Call("prefill with snapshots", conv.prefill, {**prompts, "snapshots": points}),
        Call("decode", conv.decode, {"layer": layer, "x": x(REQUESTS), "slots": slots}),
        Call("verify", conv.verify, full),
        Call("verify of a ragged batch", conv.verify,
             {"layer": layer, "x": x(REQUESTS), "slots": slots, "query_start_loc": rig.ints([0, 1, 2, 3])}),
        Call("verify of a tree", conv.verify, {**full, "parents": rig.ints([*range(-1, drafts - 1)] * REQUESTS)}),
        Call("commit", conv.commit, {**step, "state_slots": states}),
        Call("commit of a tree", conv.commit, {**step, "path": path, "state_slots": states}),
        Call("commit with tracking", conv.commit, {**step, **tracked}),
        Call("copy_slots", conv.copy_slots, {"src": slots, "dst": more}),
        Call("zero_slots", conv.zero_slots, {"slots": slots}),
        Call("read_state", conv.read_state, {"slots": slots}),
    ]  # fmt: skip
    tags = {"snapshots": SNAPSHOTS, "parents": TREES, "path": TREES, "track_slots": TRACKING}
    unclaimed = {name for name, tag in tags.items() if tag not in offers}
    return [one for one in made if f"conv.{one.method}" in offers and unclaimed.isdisjoint(one.given)]
