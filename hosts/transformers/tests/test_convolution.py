"""A model's convolutions are the backend's, over the slots of the pool, and only inside of ``routed``."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from statehal.errors import ArgumentError, PoolExhausted, Unsupported
from statehal_transformers import PooledCache
from statehal_transformers.tensor_conv import same_convolution

FAMILIES = ("lfm2", "mamba2", "qwen3_next", "kimi_linear", "falcon_h1")
NOT_ROUTED = r"conv state that lies in a pool.*\(fix: run the model inside"
NAMES = ("causal_conv1d_fn", "causal_conv1d_update", "mamba2_selective_state_update")


def by_definition(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: Any = None, **_: Any
) -> torch.Tensor:
    """``[batch, channels, tokens]`` convolved tap by tap in float64 and rounded once, a sum at a time."""
    width = weight.shape[1]
    padded = torch.nn.functional.pad(x.double(), (width - 1, 0))
    total = torch.zeros_like(x, dtype=torch.float64)
    for tap in range(width):
        total += weight[:, tap, None].double() * padded[..., tap : tap + x.shape[-1]]
    if bias is not None:
        total += bias[:, None].double()
    return (total * torch.sigmoid(total) if activation else total).to(x.dtype)


def update_by_definition(x: torch.Tensor, state: torch.Tensor, *weights: Any, **options: Any) -> torch.Tensor:
    inputs = torch.cat([state, x], -1)
    state.copy_(inputs[..., -state.shape[-1] :])
    return by_definition(inputs, *weights, **options)[..., -x.shape[-1] :]


def module_of(s: Any) -> Any:
    return sys.modules[type(s.model).__module__]


@contextmanager
def convolved_by_definition(s: Any) -> Iterator[None]:
    module = module_of(s)
    own = {name: getattr(module, name) for name in NAMES[:2]}
    module.causal_conv1d_fn, module.causal_conv1d_update = by_definition, update_by_definition
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(module, name, function)


def passes(s: Any, cache: Any) -> list[torch.Tensor]:
    """Logits of a prompt, single tokens, and several at a time; whichever convolution is in place is used."""
    logits = []
    with torch.no_grad():
        for start, stop in ((0, 9), (9, 10), (10, 11), (11, 14), (14, 15)):
            logits.append(s.model(s.ids[:, start:stop], **{s.host.keyword: cache}).logits)
    return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_logits_are_those_of_the_definition(setup: Callable[..., Any], kind: str, dtype: torch.dtype) -> None:
    """Transformers' own cache, with sums in float64 that are rounded once, gives the same bits."""
    s = setup(kind, dtype, lengths=(15, 15))
    dynamic, pooled = s.caches()
    with pooled:
        with s.host.routed():
            ours = passes(s, pooled)
        with convolved_by_definition(s):
            theirs = passes(s, dynamic)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b), float((a - b).abs().max())


@pytest.mark.parametrize("kind", FAMILIES)
def test_transformers_own_convolution_differs_in_the_last_bits(setup: Callable[..., Any], kind: str) -> None:
    """Its sums have another order: in float32 the logits agree to 1e-5, and that is all that can be asked."""
    s = setup(kind, lengths=(15, 15))
    dynamic, pooled = s.caches()
    with pooled, s.host.routed():
        for a, b in zip(passes(s, pooled), passes(s, dynamic), strict=True):  # tensors go to the module's own functions
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


class Counting:
    """Methods that note down their names before they run."""

    def __init__(self, methods: Any) -> None:
        self.methods = methods
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self.methods, name)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_step_convolves_once_a_layer_and_commits_once(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind)
    (group,) = s.host.conv_groups
    counting: Any = Counting(group.conv)
    host = replace(s.host, conv_groups=(replace(group, conv=counting, prepared={}),))
    with PooledCache(host) as cache:
        s.generate(cache, max_new_tokens=6, eos_token_id=None)
        layers = len(group.spec.layers)
        assert counting.calls == {"prepare": layers, "prefill": layers, "decode": 5 * layers, "commit": 6}
        cache.reorder_cache(torch.tensor([0, 0, 1]))
        s.forward(cache, s.ids[:, :1])
        assert counting.calls["copy_slots"] == 1


@pytest.mark.parametrize("kind", FAMILIES)
def test_outside_of_routed_the_model_is_told(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, lengths=(5,))
    arguments = {s.host.keyword: s.host.new_cache()}
    with (
        torch.no_grad(),
        pytest.raises(Unsupported, match=NOT_ROUTED),
    ):
        s.model(s.ids, **arguments)
    cache = arguments[s.host.keyword]
    cache.reset()
    s.forward(cache, s.ids)
    with (
        torch.no_grad(),
        pytest.raises(Unsupported, match=NOT_ROUTED),
    ):
        s.model(s.ids[:, :1], **arguments)
    cache.release()


@pytest.mark.parametrize("kind", ["qwen3_next", "falcon_h1"])
def test_the_modules_functions_come_back(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind)
    module = module_of(s)
    own = {name: vars(module)[name] for name in NAMES if name in vars(module)}

    def replaced() -> bool:
        now = {name: vars(module)[name] for name in own}
        assert now == own or not any(now[name] is own[name] for name in own)
        return now != own

    first, second = s.host.routed(), setup(kind).host.routed()
    with first:
        assert replaced()
        with pytest.raises(KeyError), s.host.routed():
            raise KeyError
        assert replaced()
        second.__enter__()
    assert replaced(), "blocks may end in any order"
    second.__exit__(None, None, None)
    assert not replaced()
    with pytest.raises(RuntimeError), s.host.routed(), same_convolution(s.host):
        raise RuntimeError
    assert not replaced()


def test_models_without_convolutions_need_no_routes(setup: Callable[..., Any]) -> None:
    s = setup("llama")
    assert s.host.modules == ()
    with s.host.routed(), s.host.new_cache() as cache:
        s.forward(cache, s.ids)


def test_new_weights_are_used(setup: Callable[..., Any]) -> None:
    """Written in place, or put in their place: the next step convolves with them."""
    s = setup("lfm2", lengths=(6,))
    convolution = s.model.model.layers[0].conv.conv
    saved = convolution.weight

    def logits() -> torch.Tensor:
        with s.host.new_cache() as cache:
            result: torch.Tensor = s.forward(cache, s.ids)
        return result

    try:
        before = logits()
        with torch.no_grad():
            convolution.weight.mul_(2)
            in_place = logits()
            convolution.weight = torch.nn.Parameter(saved / 2)
            back = logits()
            saved.div_(2)
    finally:
        convolution.weight = saved
    assert not torch.equal(in_place, before)
    assert torch.equal(back, before)


def test_a_state_that_was_not_stored_is_noticed(setup: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that changes its recurrent state in place by a function that nobody routes must not go on silently."""
    s = setup("mamba2", lengths=(6,))
    module = module_of(s)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        with s.host.routed(), torch.no_grad():
            monkeypatch.setattr(module, NAMES[2], module.mamba2_selective_state_update.original)
            s.model(s.ids[:, :1], **cache.as_argument())
            with pytest.raises(ArgumentError, match=r"recurrent state of layer 0 holds 6 tokens and the cache 7: "):
                s.model(s.ids[:, :1], **cache.as_argument())
            monkeypatch.undo()


def test_a_pass_that_stopped_between_layers(setup: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    s = setup("qwen3_next", lengths=(6,))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)

        def stop(*args: Any, **kwargs: Any) -> None:
            raise InterruptedError

        monkeypatch.setattr(s.model.model.layers[2], "forward", stop)
        with pytest.raises(InterruptedError):
            s.forward(cache, s.ids[:, :1])
        monkeypatch.undo()
        with pytest.raises(ArgumentError, match=r"the conv window of layer 2 holds 6 tokens and the cache 7: a"):
            s.forward(cache, s.ids[:, :2])
        with pytest.raises(Unsupported, match=r"crop\(-1\): a forward pass stopped between layers.*\(fix: cache.reset"):
            cache.crop(-1)
        cache.reset()
        with s.host.new_cache() as alone:
            assert torch.equal(s.forward(cache, s.ids), s.forward(alone, s.ids))
    s.host.pool.check()


@pytest.mark.parametrize("kind", FAMILIES)
def test_an_exhausted_pool_leaves_the_cache_as_it_was(setup: Callable[..., Any], kind: str) -> None:
    """No slot for a beam, then no slot for another batch: nothing is taken, and the cache goes on."""
    s = setup(kind, page_size=4, lengths=(12, 12))
    pool = s.host.pool
    token = s.ids[:, :1]
    with s.host.new_cache() as alone:
        s.forward(alone, s.ids)
        alone.reorder_cache(torch.tensor([1, 1]))
        expected = s.forward(alone, token)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        cache.reorder_cache(torch.tensor([1, 1]))
        most = pool.available("conv").pages
        hold = [pool.alloc(1, "conv") for _ in range(most)]
        used = {name: pool[name].used_pages for name in pool}
        with pytest.raises(PoolExhausted, match=r"sub-pool 'conv' is asked for 1 pages and can give 0 now; compaction"):
            s.forward(cache, token)
        with s.host.new_cache() as other, pytest.raises(PoolExhausted):
            s.forward(other, s.ids)
        assert {name: pool[name].used_pages for name in pool} == used
        pool.free(hold)
        assert torch.equal(s.forward(cache, token), expected)
        pool.check()


@pytest.mark.parametrize("kind", ["lfm2", "falcon_h1"])
def test_compaction_takes_slots_along(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, page_size=4, lengths=(12, 12), requests=40)
    pool = s.host.pool
    with s.host.new_cache() as first, s.host.new_cache() as cache, s.host.new_cache() as alone:
        others = [s.host.new_cache() for _ in range(6)]
        for other in others[:3]:
            s.forward(other, s.ids)
        s.forward(cache, s.ids)
        for other in others[3:]:
            s.forward(other, s.ids)
        s.forward(alone, s.ids)
        for other in others:
            other.release()
        before = pool["conv"].physical_ids(cache.slots[0].page_ids()).tensor.clone()
        pool.compact(1000)
        moved = not torch.equal(pool["conv"].physical_ids(cache.slots[0].page_ids()).tensor, before)
        assert torch.equal(s.forward(cache, s.ids[:, :1]), s.forward(alone, s.ids[:, :1]))
        assert moved or pool["conv"].plan.pages_per_slab > 16
        pool.check()
        del first


def test_what_does_not_fit_the_plan(setup: Callable[..., Any]) -> None:
    s, other = setup("lfm2", lengths=(5,)), setup("lfm2", torch.bfloat16, lengths=(5,))
    with other.host.new_cache() as cache:
        with pytest.raises(ArgumentError, match=r"layer 0 gave conv inputs of 48 channels in torch.float32 and 3 taps"):
            s.forward(cache, s.ids)
        assert other.host.pool["conv"].used_pages == 0
    with s.host.new_cache() as cache, s.host.routed():
        with pytest.raises(ArgumentError, match="gave conv inputs that require gradients"):
            s.model(s.ids, **cache.as_argument())
        with pytest.raises(ArgumentError, match="layer 1 has no conv or recurrent state: it is a PooledLayer"):
            cache.get_conv_state(1)


def test_slots_are_given_back(setup: Callable[..., Any]) -> None:
    s = setup("falcon_h1")
    cache = s.host.new_cache()
    assert isinstance(cache, PooledCache)
    s.forward(cache, s.ids)
    assert len(cache.slots) == s.host.pool["conv"].used_pages == 3
    cache.batch_select_indices(torch.tensor([True, False, True]))
    assert s.host.pool["conv"].used_pages == 2
    cache.batch_repeat_interleave(2)
    assert (s.host.pool["conv"].used_pages, cache.batch_size) == (2, 4)
    s.forward(cache, s.ids[:1, :1].repeat(4, 1))
    assert s.host.pool["conv"].used_pages == 4
    del cache
    assert s.host.collect() == 1
    assert [s.host.pool[name].used_pages for name in s.host.pool] == [0, 0]
