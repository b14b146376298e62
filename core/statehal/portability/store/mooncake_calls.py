"""Calls of Mooncake's client that move, find or remove values, and what their answers are worth."""

from collections.abc import Sequence

from statehal.portability.store.mooncake_client import BEING_WRITTEN, NOT_THERE, CallFailed, MooncakeClient, is_gone


def put(
    client: MooncakeClient, names: Sequence[str], pointers: Sequence[int], sizes: Sequence[int], replaced: Sequence[str]
) -> list[int]:
    """Store values from registered memory; of each 0 or an error, and ``stored`` says more.

    To put where there is a value is no error to the client, and changes nothing: what could not be removed is one.
    """
    removed = remove(client, replaced) if replaced else []
    kept = {name: code for name, code in zip(replaced, removed, strict=True) if code and code not in NOT_THERE}
    codes = each(names, client.batch_put_from(list(names), list(pointers), list(sizes)))
    return [kept.get(name, code) for name, code in zip(names, codes, strict=True)]


def stored(client: MooncakeClient, names: Sequence[str]) -> list[int]:
    """Whether values that were put can be read; of each 0 or an error.

    To put a value that another process is still writing is no error to the client. That process may die.
    """
    codes = each(names, client.batch_is_exist(list(names)))
    return [{1: 0, 0: BEING_WRITTEN}.get(code, code) for code in codes]


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
