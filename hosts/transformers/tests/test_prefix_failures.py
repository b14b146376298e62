"""What a store, a pool or a caller does wrong shortens what is reused, or is refused; it changes no logit."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from prefix_runs import Gated, N, farthest, fresh, opened, prompt, run

from statehal.errors import ArgumentError, OffloadError, PoolExhausted, Unsupported
from statehal.portability.offload import Transfer
from statehal.portability.store import FileStore, block_keys
from statehal_transformers import PrefixStore
from statehal_transformers.passes import rope_of


def flip(directory: Path, key: str, kind: str) -> None:
    """Flip a bit in the last byte of one of the parts of a block, in the sub-pool of a spec."""
    for namespace in directory.glob("namespaces/*"):
        if f'"kind":"{kind}"' in (namespace / "namespace.json").read_text().replace(" ", ""):
            path = min(namespace.glob(f"*/{key}.*"))
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError(f"no {kind} in {directory}")


@pytest.mark.parametrize(
    ("kind", "spec", "block", "reused"),
    [
        ("llama", "Attention", 1, N),  # a span in the middle
        ("llama", "Attention", 0, 0),
        ("gemma3", "Attention", 2, 2 * N),
        ("qwen3_next", "ConvRecurrent", 2, 2 * N),  # the point at the end: an earlier one will do
        ("qwen3_next", "Attention", 1, N),
        ("mamba2", "ConvRecurrent", 2, 2 * N),
        ("deepseek_v3", "Latent", 2, 2 * N),
    ],
)
def test_damage_is_computed_again(
    setup: Callable[..., Any], tmp_path: Path, kind: str, spec: str, block: int, reused: int
) -> None:
    s = setup(kind)
    ids = prompt(3 * N + 2)
    with opened(s.host, tmp_path) as prefixes:
        run(s, prefixes, ids, max_new_tokens=1)
    flip(tmp_path, block_keys(ids[0].tolist(), N)[block], spec)
    with opened(s.host, tmp_path) as prefixes:
        output, cache = run(s, prefixes, ids, max_new_tokens=3)
        assert cache.reuse.reused == reused
        assert f"48 tokens were found, but block {block} did not come: " in cache.reuse.why
        assert farthest(output, fresh(s, ids, max_new_tokens=3)) <= 1e-5
        prefixes.wait()
        again = run(s, prefixes, ids, max_new_tokens=3)[1]  # the damaged part was stored once more
        assert (again.reuse.reused, again.reuse.why) == (3 * N, "")


def test_damage_to_one_of_a_batch_shortens_all(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("qwen3_next")
    ids = prompt(3 * N + 2, batch=2)
    with opened(s.host, tmp_path) as prefixes:
        run(s, prefixes, ids, max_new_tokens=1)
    flip(tmp_path, block_keys(ids[1].tolist(), N)[2], "ConvRecurrent")
    with opened(s.host, tmp_path) as prefixes:
        output, cache = run(s, prefixes, ids, max_new_tokens=3)
        assert cache.reuse.reused == 2 * N
        assert "48 tokens were found, but not of every sequence: block 2 did not come" in cache.reuse.why
        assert farthest(output, fresh(s, ids, max_new_tokens=3)) <= 1e-5


@pytest.mark.parametrize("kind", ["gemma3", "qwen3_next"])
def test_generation_goes_on_while_the_store_stands_still(setup: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    s = setup(kind, requests=16)
    store = Gated(FileStore(tmp_path))
    ids = prompt(2 * N + 3)
    with opened(s.host, store, host_bytes=1 << 20) as prefixes:
        output, _ = run(s, prefixes, ids, max_new_tokens=2 * N)  # comes to its end although nothing is stored
        assert store.waiting.wait(60)
        assert not list(tmp_path.rglob("*.safetensors"))
        assert farthest(output, fresh(s, ids, max_new_tokens=2 * N)) <= 1e-5
        store.gate.set()
        prefixes.wait()
        assert prefixes.counts()["store"] == {"done": 4}
        assert run(s, prefixes, ids, max_new_tokens=1)[1].reuse.reused == 2 * N


@pytest.mark.parametrize("kind", ["llama", "qwen3_next", "lfm2"])
def test_a_pool_with_nothing_to_spare_waits_for_the_store(setup: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    """One slot and no page more than a sequence takes: what the store holds of them is waited for, not an error."""
    s = setup(kind, page_size=3)
    store, pool, ids = Gated(FileStore(tmp_path)), s.host.pool, prompt(2 * N + 3)
    takes = [pool.alloc(2 * N + 3 + 7), *([pool.alloc(1, "conv")] if "conv" in pool else [])]
    others = [handle for name in pool for handle in rest_of(pool, name)]
    pool.free(takes)
    # with host memory for one block only, the others keep their pages until that is stored
    with opened(s.host, store, host_bytes=block_bytes(s.host)) as prefixes:
        waits = open_when_waited_for(prefixes, store)
        output, _ = run(s, prefixes, ids, max_new_tokens=8)  # reads all tokens but the newest
        assert waits, "the pool had something to spare"
        assert farthest(output, fresh(s, ids, max_new_tokens=8)) <= 1e-5
        prefixes.wait()
        assert run(s, prefixes, ids, max_new_tokens=1)[1].reuse.reused == 2 * N
        pool.free(others)


def open_when_waited_for(prefixes: PrefixStore, store: Gated) -> list[bool]:
    """Open the gate as soon as anybody waits for the store; that is noted in the list."""
    wait, waits = prefixes.wait, []

    def opening() -> bool:
        store.gate.set()
        waits.append(wait())
        return waits[-1]

    prefixes.wait = opening  # type: ignore[method-assign]
    return waits


def rest_of(pool: Any, name: str) -> list[Any]:
    """Take every page that a sub-pool can still be given."""
    taken = []
    try:
        while True:
            taken.append(pool.alloc(1, name))
    except PoolExhausted:
        return taken


def block_bytes(host: Any) -> int:
    """What the error says of too little host memory."""
    with pytest.raises(ArgumentError, match="staged in one piece") as error:
        PrefixStore(host, FileStore.__new__(FileStore), model="m", revision="1", object_tokens=N, host_bytes=1)
    return int(str(error.value).split("one piece of ")[1].split(" ")[0].replace(",", ""))


@pytest.mark.parametrize(("kind", "name"), [("llama", "full"), ("qwen3_next", "full"), ("qwen3_next", "conv")])
def test_a_pool_that_is_too_small_is_the_usual_error(
    setup: Callable[..., Any], tmp_path: Path, kind: str, name: str
) -> None:
    """Too few pages, or slots, to compute or to restore: nothing is kept, and what was there before goes on."""
    s = setup(kind, tokens=8 * N)
    pool, ids = s.host.pool, prompt(2 * N + 1)
    with opened(s.host, tmp_path) as prefixes:
        run(s, prefixes, ids, max_new_tokens=1)
        prefixes.wait()
        with prefixes.cache(ids) as held:
            others = rest_of(pool, name)
            before = {one: pool[one].used_pages for one in pool}
            for asked in (ids, (ids + 1) % 97):
                with pytest.raises(PoolExhausted, match=rf"sub-pool '{name}' is asked for"):
                    prefixes.cache(asked)
                assert {one: pool[one].used_pages for one in pool} == before
            pool.free(others.pop())  # what it takes itself
            logits = s.forward(held, ids[:, 2 * N :])
            assert logits.argmax() == fresh(s, ids, max_new_tokens=1).sequences[0, -1]
            pool.free(others)


def test_blocks_that_are_refused_are_counted_and_computed_again(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("llama")
    store = Gated(FileStore(tmp_path))
    ids = prompt(3 * N + 1)
    options: dict[str, Any] = {"host_bytes": block_bytes(s.host), "max_queued": 1, "when_full": "refuse"}
    with opened(s.host, store, **options) as prefixes:
        run(s, prefixes, ids, max_new_tokens=1)
        store.gate.set()
        prefixes.wait()
        counts = prefixes.counts()["store"]
        assert counts["refused"] >= 1
        there = [any(tmp_path.rglob(f"{key}.*")) for key in block_keys(ids[0].tolist(), N)]
        assert there.count(False) == counts["refused"]  # which ones, is up to the worker
        output, cache = run(s, prefixes, ids, max_new_tokens=2)
        assert cache.reuse.reused == there.index(False) * N
        assert farthest(output, fresh(s, ids, max_new_tokens=2)) <= 1e-5


def test_what_tokens_do_not_say_is_refused(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("llama")
    ids = prompt(N + 4, batch=2)
    with opened(s.host, tmp_path) as prefixes:
        mask = torch.ones_like(ids)
        mask[0, 0] = 0
        with prefixes.cache(ids) as cache:
            with pytest.raises(ArgumentError, match=r"attention_mask hides tokens: .*batch prompts of one length"):
                s.generate(cache, ids, mask)
            with torch.no_grad():
                embeddings = s.model.get_input_embeddings()(ids[:, N:])
                with pytest.raises(ArgumentError, match="a pass without input_ids has no tokens to name its state by"):
                    s.model(inputs_embeds=embeddings, **cache.as_argument())
                with pytest.raises(ArgumentError, match="position_ids of the pass are not those after 16 tokens"):
                    s.model(ids[:, N:], position_ids=torch.arange(4)[None] + N + 1, **cache.as_argument())
                for pixels in (torch.zeros(1), [torch.zeros(1)], {"left": (0, torch.zeros(1))}):
                    with pytest.raises(ArgumentError, match=r"the pass is given pixel_values besides its tokens"):
                        s.model(ids[:, N:], pixel_values=pixels, **cache.as_argument())
                with pytest.raises(ArgumentError, match=r"a pass of 2 x 4 tokens came without their ids"):
                    s.model.model(ids[:, N:], **cache.as_argument())
                for more in (torch.cat([ids, ids]), ids[:1]):
                    with pytest.raises(ArgumentError, match=rf"input_ids are of {len(more)} sequences and the "):
                        s.model(more, attention_mask=torch.ones_like(more), **cache.as_argument())
                    with pytest.raises(ArgumentError, match=rf"input_ids are of {len(more)} sequences and the "):
                        cache.prefill(more)
            assert cache.length == N, "nothing was taken"
            with pytest.raises(ArgumentError, match=r"sequence 1 of the cache holds other tokens than the 16 first"):
                cache.prefill(torch.cat([ids[:1], ids[1:].flip(1)]))
            with pytest.raises(ArgumentError, match=r"the cache holds 16 tokens: expected an empty one"):
                cache.begin(ids)
        wrong: Any
        for wrong in (ids.float(), ids[0], [[1, 2]], ids[:, :0]):
            with pytest.raises(ArgumentError, match="input_ids are"):
                prefixes.cache(wrong)
            with prefixes.cache(ids) as cache, pytest.raises(ArgumentError, match="input_ids are"):
                s.model(wrong, **cache.as_argument())


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_keys_that_depend_on_the_length_of_a_pass_have_no_name(
    host_of: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    """Whatever went through the model before may have changed how it rotates the next keys."""
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 10000.0, "factor": 2.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "original_max_position_embeddings": 32}
    model, host = host_of("llama", torch.float32, 16, 64, rope_parameters=rope)
    with pytest.raises(Unsupported, match=rf"'llama' rotates keys by '{kind}', .*fix: use caches of host"):
        PrefixStore(host, FileStore(tmp_path), model="m", revision="1", host_bytes=1 << 20)
    assert not model._forward_pre_hooks


def test_keys_that_some_layers_rotate_by_the_length_have_none_either() -> None:
    layers = {"sliding_attention": {"rope_type": "default"}, "full_attention": {"rope_type": "dynamic"}}
    config = SimpleNamespace(model_type="one", get_text_config=lambda decoder: SimpleNamespace(rope_parameters=layers))
    with pytest.raises(Unsupported, match="'one' rotates keys by 'dynamic'"):
        rope_of(SimpleNamespace(config=config))


def test_a_part_of_a_model_is_not_stored_as_all_of_it(
    setup: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = setup("llama")
    monkeypatch.setattr(s.model, "_tp_size", 2)
    with pytest.raises(Unsupported, match=r"divided among 2 ranks, .*fix: an Offloader on a RankPool"):
        PrefixStore(s.host, FileStore(tmp_path), model="m", revision="1", host_bytes=1 << 20)


def test_the_ids_of_a_pass_that_failed_name_no_other_pass(setup: Callable[..., Any], tmp_path: Path) -> None:
    s, ids = setup("llama"), prompt(N)
    with opened(s.host, tmp_path) as prefixes, prefixes.cache(ids[:, :1]) as cache:
        stop = s.model.model.register_forward_pre_hook(lambda *_: 1 / 0)
        try:
            with pytest.raises(ZeroDivisionError):
                s.forward(cache, ids)
        finally:
            stop.remove()
        with torch.no_grad(), pytest.raises(ArgumentError, match=r"a pass of 1 x 16 tokens came without their ids"):
            s.model.model((ids + 1) % 97, **cache.as_argument())


def test_why_names_what_the_shortest_of_a_batch_lacks(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("llama")
    a, b = prompt(4 * N + 1), prompt(4 * N + 1, seed=1)
    with opened(s.host, tmp_path) as prefixes:
        run(s, prefixes, a[:, : 3 * N + 1], max_new_tokens=1)
        run(s, prefixes, b[:, : N + 1], max_new_tokens=1)
        prefixes.wait()
        with prefixes.cache(torch.cat([a, b])) as cache:
            assert cache.reuse.reused == N
            assert cache.reuse.why.startswith("after 16 tokens, 'full' is ")


def test_an_interrupt_while_it_waits_forgets_nothing(
    setup: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = setup("llama")
    with opened(s.host, tmp_path) as prefixes:
        run(s, prefixes, prompt(2 * N + 1), max_new_tokens=1)
        with monkeypatch.context() as patched:
            patched.setattr(Transfer, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                prefixes.wait()
        assert prefixes.wait(), "the pages of what was sent would not be waited for"
        assert not prefixes.wait()


def interrupted(*args: Any) -> None:
    raise KeyboardInterrupt


def test_a_pass_that_stopped_between_layers_leaves_no_name(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("llama")
    ids = prompt(2 * N)
    with opened(s.host, tmp_path) as prefixes:
        with prefixes.cache(ids[:, :1]) as cache:
            stop = s.model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
            try:
                with pytest.raises(ZeroDivisionError):
                    s.forward(cache, (ids + 1) % 97)
            finally:
                stop.remove()
            cache.crop(-2 * N)
            s.forward(cache, ids)
        prefixes.wait()
        names = {path.name.split(".")[0] for path in tmp_path.rglob("*.safetensors")}
        assert names == set(block_keys(ids[0].tolist(), N))


def test_a_closed_store_takes_nothing_and_the_model_is_as_it_was(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("llama")
    hooks = len(s.model._forward_pre_hooks), len(s.model._forward_hooks)
    ids = prompt(N + 4)
    with PrefixStore(
        s.host, FileStore(tmp_path), model="m", revision="1", object_tokens=N, host_bytes=1 << 20
    ) as prefixes:
        assert len(s.model._forward_pre_hooks) == hooks[0] + 1
        cache = prefixes.cache(ids)
    assert (len(s.model._forward_pre_hooks), len(s.model._forward_hooks)) == hooks
    with pytest.raises(OffloadError, match=r"this prefix store is closed"):
        s.forward(cache, ids[:, N:])
    with pytest.raises(OffloadError, match=r"this prefix store is closed"):
        prefixes.cache(ids)
    cache.release()
    prefixes.close()
    s.host.pool.check()
    assert s.host.pool["full"].used_pages == 0


def test_left_with_an_exception_a_store_drops_what_is_queued(setup: Callable[..., Any], tmp_path: Path) -> None:
    s, store = setup("qwen3_next"), Gated(FileStore(tmp_path))
    named: dict[str, Any] = {"model": "m", "revision": "1", "object_tokens": N, "host_bytes": block_bytes(s.host)}
    prefixes = PrefixStore(s.host, store, **named)

    class WhenDropped:
        """A gate that opens as soon as anything was dropped; what a worker is at is finished."""

        def wait(self, timeout: float) -> bool:
            end = time.monotonic() + timeout
            while not (dropped := "cancelled" in prefixes.counts()["store"]) and time.monotonic() < end:
                time.sleep(0.005)
            return dropped

    store.gate = WhenDropped()
    with pytest.raises(KeyError), prefixes, prefixes.cache(prompt(4 * N + 1)):
        raise KeyError
    counts = prefixes.counts()["store"]
    assert counts["cancelled"] >= 1
    assert sum(counts.values()) == 4
    s.host.pool.check()
    assert [s.host.pool[name].used_pages for name in s.host.pool] == [0, 0]
