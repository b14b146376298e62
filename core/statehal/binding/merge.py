"""Merging what several plugins provide, method by method."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from statehal.binding.answers import offered
from statehal.binding.asking import ask
from statehal.errors import Unsupported
from statehal.hookspecs import methods_of
from statehal.registry import REFERENCE, Provider
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

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __getattr__(self, name: str) -> Any:
        # asked of a half-made copy, too, which has no providers yet
        raise AttributeError(f"no method {name!r} here: there are {[*vars(self).get('providers', ())]}")

    def __repr__(self) -> str:
        return f"BoundMethods({dict(self.providers)})"


def wrapped(bound: BoundMethods, wrapper: object, *others: object) -> BoundMethods:
    """The same providers behind the methods of ``wrapper``; ``prepare``, and what nobody provides, stay as they are.

    Args:
        others: what else the wrapper calls; a flag is true where it is for all.
    """
    methods = {name: value for name, value in vars(bound).items() if name not in (*FLAGS, "providers")}
    methods |= {name: getattr(wrapper, name) for name in bound.providers if name != "prepare"}
    return BoundMethods(
        bound.providers, methods, {flag: all(getattr(one, flag) for one in (bound, *others)) for flag in FLAGS}
    )


def merge(hook: str, label: str, providers: Sequence[Provider], request: object, tracer: Tracer | None) -> BoundMethods:
    """Ask every provider once and take each method from the first that has it.

    Args:
        hook: an operation hook.
        label: names the operations in traces: ``"kv"`` gives ``"kv.write"``.
        providers: in order of precedence. Where the reference comes last and raises ``Unsupported``, its refusal
            matters only for the methods that nobody else has.

    Raises:
        Unsupported: a plugin refused the request.
        PluginBroken: a plugin failed, or its answer is no set of methods.
    """
    answers: dict[str, tuple[Any, Mapping[str, Callable[..., Any]]]] = {}
    refusal = "(fix: install one)"
    for provider in providers:
        try:
            answer = ask(provider, hook, request)
        except Unsupported as error:
            if provider.name != REFERENCE or not answers:
                raise
            refusal = f"and the reference refused: {error}"
            continue
        if answer is not None:
            answers[provider.name] = (answer, offered(hook, provider.name, answer))
    chosen: dict[str, tuple[str, Callable[..., Any]]] = {}
    for method in methods_of(hook):
        for name, (_, has) in answers.items():
            if method in has:
                chosen[method] = (name, has[method])
                break
    used = {name for name, _ in chosen.values()}  # before several names stand for prepare
    if "prepare" in chosen:
        calls = {name: has["prepare"] for name, (_, has) in answers.items() if name in used and "prepare" in has}
        chosen["prepare"] = (", ".join(calls), _prepare_all(list(calls.values())))
    methods: dict[str, Callable[..., Any]] = {}
    for method in methods_of(hook):
        if method not in chosen:
            methods[method] = _missing(method, hook, [provider.name for provider in providers], refusal)
        elif tracer is not None:
            methods[method] = tracer.wrap(f"{label}.{method}", *chosen[method])
        else:
            methods[method] = chosen[method][1]
    flags = {flag: all(getattr(answers[name][0], flag, False) for name in used) for flag in FLAGS}
    return BoundMethods({method: name for method, (name, _) in chosen.items()}, methods, flags)


def _prepare_all(calls: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """``prepare`` of every provider of some method: a ``decode`` of one needs the weights as much as the rest."""
    if len(calls) == 1:
        return calls[0]

    def prepare(*args: Any, **kwargs: Any) -> None:
        for call in calls:
            call(*args, **kwargs)

    return prepare


def _missing(method: str, hook: str, asked: Sequence[str], refusal: str) -> Callable[..., Any]:
    def unsupported(*args: object, **kwargs: object) -> Any:
        raise Unsupported(f"no plugin offers {method}: {hook} was asked of {', '.join(asked) or 'nobody'} {refusal}")

    return unsupported
