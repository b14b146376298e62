"""Asking one plugin, and saying whose fault it was."""

from typing import Any

from statehal.errors import PluginBroken, StatehalError
from statehal.registry import Provider


def ask(provider: Provider, hook: str, request: object) -> Any:
    """The plugin's answer.

    Raises:
        StatehalError: what the plugin raised of these, with a note that names it.
        PluginBroken: naming plugin and hook; anything else that it raised is the cause.
    """
    try:
        return provider.call(request)
    except StatehalError as error:
        error.add_note(f"raised by plugin {provider.name!r} in {hook}")
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise PluginBroken(
            f"plugin {provider.name!r} failed in {hook}: {type(error).__name__}: {text} (fix: repair it, or set "
            f"STATEHAL_DISABLE={provider.name})"
        ) from error
