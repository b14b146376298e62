"""Calls of Mooncake's client that move, find or remove values, and what their answers are worth."""

from collections.abc import Sequence

from statehal.portability.store.mooncake_client import BEING_WRITTEN, NOT_THERE, CallFailed, MooncakeClient, is_gone


def put(
    client: MooncakeClient, names: Sequence[str], pointers: Sequence[int], sizes: Sequence[int], replaced: Sequence[str]
) -> list[int]:
    """Store values from registered memory, and see that they can be read; of each 0 or an error.

    To the client two things are no error: to put where there is a value, which changes nothing, so what could not be
    removed is one here; and to put what another process is still writing, which may die.
    """
    removed = remove(client, replaced) if replaced else []
    kept = {name: code for name, code in zip(replaced, removed, strict=True) if code and code not in NOT_THERE}
    codes = each(names, client.batch_put_from(list(names), list(pointers), list(sizes)))
    found = {name: kept.get(name, code) for name, code in zip(names, codes, strict=True)}
    done = [name for name, code in found.items() if not code]
    for name, code in zip(done, each(done, client.batch_is_exist(done)) if done else (), strict=True):
        found[name] = {1: 0, 0: BEING_WRITTEN}.get(code, code)
    return [found[name] for name in names]


def get(client: MooncakeClient, names: Sequence[str], pointers: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Read values into registered memory; of each its length, or an error."""
    return each(names, client.batch_get_into(list(names), list(pointers), list(sizes)))


def remove(client: MooncakeClient, names: Sequence[str]) -> list[int]:
    """Remove values, whoever reads them; of each 0 or an error."""
    return each(names, client.batch_remove(list(names), True))


def each(names: Sequence[str], codes: Sequence[int]) -> list[int]:
    """The client's answers, one a name.

    Raises:
        CallFailed: the master is gone, or there is another number of them.
    """
    if len(codes) != len(names):
        raise CallFailed(-1)
    if codes and is_gone(codes[0]):
        raise CallFailed(codes[0])
    return list(codes)
