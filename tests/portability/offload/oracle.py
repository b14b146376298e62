"""From where a request can go on, token by token."""

from statehal.portability.offload import Need


def can_go_on(need: Need, there: list[bool], tokens: int, length: int) -> bool:
    """By what the query at ``length`` reads, token by token: itself, and ``window - 1`` tokens before it."""
    if need.kind == "point":
        return there[length // tokens - 1]
    nearest = 0 if need.window is None else max(0, length + 1 - need.window)
    return all(there[token // tokens] for token in range(nearest, length))
