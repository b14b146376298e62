"""Merging what several plugins provide, method by method."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from statehal.errors import PluginBroken, Unsupported
from statehal.hookspecs import methods_of
from statehal.registry import Provider
from statehal.trace import Tracer

FLAGS = ("graph_capturable", "host_sync_free")


class BoundMethods:
    """The methods of one operation contract, each the provider's own bound method; nothing stands in between.

    Attributes:
        providers: the plugin that provides each method; a method that nobody provides is missing here and raises
            ``Unsupported`` when called.
    """

    def __init__(
        self, providers: Mapping[str, str], methods: Mapping[str, Callable[..., Any]], flags: Mapping[str, bool]
    ) -> None:
        vars(self).update(methods, **flags, providers=MappingProxyType(dict(providers)))

    providers: Mapping[str, str]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"bound methods cannot be changed: {name} (fix: override them with a plugin)")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no method {name!r} here: the contract has {[*self.providers]}")

    def __repr__(self) -> str:
        return f"BoundMethods({dict(self.providers)})"


def merge(hook: str, label: str, providers: Sequence[Provider], request: object, tracer: Tracer | None) -> BoundMethods:
    """Ask every provider once and take each method from the first that has it.

    Args:
        hook: an operation hook.
        label: names the operations in traces: ``"kv"`` gives ``"kv.write"``.
        providers: in order of precedence.
    """
    answers = [(provider.name, answer) for provider in providers if (answer := provider.call(request)) is not None]
    chosen: dict[str, tuple[str, Any]] = {}
    for method in methods_of(hook):
        for name, answer in answers:
            found = getattr(answer, method, None)
            if found is not None:
                if not callable(found):
                    raise PluginBroken(
                        f"plugin {name!r} answered {hook} with {method}={found!r}, which cannot be called"
                    )
                chosen[method] = (name, found)
                break
    if "prepare" in chosen:
        chosen["prepare"] = (chosen["prepare"][0], _prepare_all(answers, {name for name, _ in chosen.values()}))
    methods: dict[str, Callable[..., Any]] = {}
    for method in methods_of(hook):
        if method not in chosen:
            methods[method] = _missing(method, hook, [provider.name for provider in providers])
        elif tracer is not None:
            methods[method] = tracer.wrap(f"{label}.{method}", *chosen[method])
        else:
            methods[method] = chosen[method][1]
    used = {name for name, _ in chosen.values()}
    flags = {flag: all(getattr(answer, flag, False) for name, answer in answers if name in used) for flag in FLAGS}
    return BoundMethods({method: name for method, (name, _) in chosen.items()}, methods, flags)


def _prepare_all(answers: Sequence[tuple[str, Any]], used: set[str]) -> Callable[..., None]:
    """``prepare`` of every provider of some method: a ``decode`` of one needs the weights as much as the rest."""
    calls = [
        call for name, answer in answers if name in used and (call := getattr(answer, "prepare", None)) is not None
    ]
    if len(calls) == 1:
        return calls[0]  # type: ignore[no-any-return]

    def prepare(*args: Any, **kwargs: Any) -> None:
        for call in calls:
            call(*args, **kwargs)

    return prepare


def _missing(method: str, hook: str, asked: Sequence[str]) -> Callable[..., Any]:
    def unsupported(*args: object, **kwargs: object) -> Any:
        raise Unsupported(
            f"no plugin offers {method}: {hook} was asked of {', '.join(asked) or 'nobody'} (fix: install one)"
        )

    return unsupported
