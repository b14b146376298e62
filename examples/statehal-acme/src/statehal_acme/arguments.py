"""Refusing optional arguments that this backend does not offer; ``statehal.arguments`` refuses all that do not fit."""

from statehal.errors import Unsupported


def refuse(where: str, tag: str, **arguments: object) -> None:
    """Refuse the optional arguments that ``tag`` of ``BackendInfo.capabilities`` stands for, where they are given."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise Unsupported(
            f"{where}: acme does not offer {', '.join(given)} (fix: use a backend that claims {tag!r}; in the backend "
            f"itself, take {tag!r} out of capabilities)"
        )
