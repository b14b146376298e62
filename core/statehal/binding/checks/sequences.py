"""Packed sequences and draft trees, by value."""

import torch
from torch import Tensor

from statehal.binding.checks.values import host, numbers, require_between
from statehal.errors import ArgumentError


def lengths(where: str, x: object, query_start_loc: object, count: int) -> Tensor | None:
    """Tokens of each of ``count`` sequences; ``None`` where the provider refuses ``x`` or ``query_start_loc``.

    Raises:
        ArgumentError: ``query_start_loc`` falls, padding included, or passes the end of ``x``.
    """
    start = host(query_start_loc, count + 1)
    if start is None or not isinstance(x, Tensor) or x.dim() != 2:
        return None
    low = torch.cat([start.new_zeros(1), start[:-1]])
    require_between(where, "query_start_loc", start, low, x.shape[0], torch.ones_like(start, dtype=torch.bool))
    return start.diff()


def chains(length: Tensor, drafts: int) -> Tensor:
    """The parents of a chain, ``[n, drafts]``: the token before; -1 for the first and past the last."""
    place = numbers(0, drafts).expand(len(length), -1)
    return (place - 1).where(place < length[:, None], -1)


def trees(where: str, parents: Tensor, query_start_loc: Tensor, held: Tensor, drafts: int) -> Tensor:
    """The parents of each request, ``[requests, drafts]``; -1 for the first and past the last.

    Args:
        parents: ``[tokens]``, as ``verify`` takes them.
        query_start_loc: ``[requests + 1]``, 1 to ``drafts`` tokens a request.
        held: which requests are no padding, ``[requests]``.

    Raises:
        ArgumentError: a token follows none before it, or a first one follows any.
    """
    token = numbers(0, len(parents))
    request = torch.searchsorted(query_start_loc[1:].contiguous(), token, right=True)
    last = len(held) - 1
    place = token - query_start_loc[request.clamp(max=max(last, 0))]
    used = torch.cat([held, held.new_zeros(1)])[request] & (place >= 0)
    require_between(where, "parents", parents, (place > 0).long() - 1, place - 1, used)
    result = torch.full((len(held), drafts), -1, device="cpu")
    result[request[used], place[used]] = parents[used]
    return result


def require_path(where: str, rows: Tensor, given: bool, parents: Tensor, length: Tensor, used: Tensor) -> None:
    """Refuse accepted rows that are no path from the root of what the step verified.

    Args:
        rows: ``[requests, D]``, read where ``used``.
        given: whether the caller gave them; else they are those of a chain.
        parents, length: of the step, ``[requests, D]`` and ``[requests]``.
    """
    require_between(where, "path", rows, 0, (length - 1).clamp(min=0)[:, None], used)  # an empty prefill has a row
    before = torch.cat([rows.new_full((len(rows), 1), -1), rows[:, :-1]], 1)
    bad = used & (parents.gather(1, rows.clamp(0, parents.shape[1] - 1)) != before)
    if bool(bad.any()):
        request, place = bad.nonzero()[0].tolist()
        row, due = int(rows[request, place]), int(before[request, place])
        follows = f"does not follow row {due}" if due >= 0 else "is not the first"
        text = f"path[{request}, {place}] is {row}" if given else f"request {request} verified a tree without a path"
        fix = "pass the accepted rows, root first" if given else "pass path"
        raise ArgumentError(f"{where}: {text}: row {row} {follows} in its tree (fix: {fix})")
