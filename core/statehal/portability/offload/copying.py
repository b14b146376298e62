"""What a worker does with a block: between pool and host memory, and between host memory and store."""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from statehal.portability.offload.metrics import Metrics
from statehal.portability.offload.rank_pool import RankPool
from statehal.portability.offload.staging import HostBuffer
from statehal.portability.offload.transfer import Block, summed
from statehal.portability.store.outcome import DONE, Outcome, Reason, missed
from statehal.portability.store.protocol import BlockStore, PartRef, RegisteredMemory

logger = logging.getLogger("statehal")


class Copier:
    """Copies blocks; its methods run on workers and touch neither the pool's accounts nor the queue."""

    def __init__(self, pool: RankPool, store: BlockStore, metrics: Metrics) -> None:
        self._memory, self._store, self._metrics = pool.hal.memory, store, metrics
        self._device, self._block_bytes = pool.pool.device, pool.block_bytes
        self._tokens = pool.object_tokens
        self._own = threading.local()

    def enter_thread(self) -> None:
        """Let what this thread launches run on the pool's device."""
        if self._device.type != "cpu":
            torch.get_device_module(self._device.type).set_device(self._device)

    def copy_out(self, block: Block, buffer: HostBuffer) -> Outcome | None:
        """Copy a block's objects to host memory; the pages are done with then.

        Returns:
            ``None``; or ``DONE``, and nothing was copied, where the store has all that is this rank's turn to write.
        """
        self.enter_thread()
        refs = [ref for ref, _ in self._own_parts(block, buffer.memory)]
        if all(answers("exists", self._store.exists(refs), refs)):
            return DONE
        self._memory.wait(block.transfer.event)
        target = self._on_device(buffer.memory)
        for share, where, first, _ in block.pieces:
            share.state.read(where, first, share.buffer(target))
        if target is not buffer.memory:
            buffer.memory.copy_(target, non_blocking=True)
        self._memory.wait(self._memory.record())
        return None

    def put(self, block: Block) -> Outcome:
        """Store what ``copy_out`` copied to the block's buffer."""
        assert block.buffer is not None, "it was copied"
        items = self._own_parts(block, block.buffer.memory)
        outcomes = answers("put", self._mover(block.buffer).put(items), items)
        self._metrics.add("bytes", "stored", _bytes(items, outcomes))
        return next((one for one in outcomes if not one), DONE)

    def load(self, block: Block, buffer: HostBuffer) -> dict[str, Outcome]:
        """Fetch a block's objects and write those of which every part came; zeroes tokens of which one did not.

        Returns:
            What came of each sub-pool.
        """
        self.enter_thread()
        items, counts = [], []
        for share, *_ in block.pieces:
            refs = share.refs(block.key)
            counts.append(len(refs))
            items += share.items(block.key, buffer.memory, range(len(refs)))
        try:
            outcomes = answers("get", self._mover(buffer).get(items), items)
        except BaseException as error:  # the tokens are to be zeroed all the same
            outcomes = [failed("get", block, error)] * len(items)
        self._metrics.add("bytes", "loaded", _bytes(items, outcomes))
        self._memory.wait(block.transfer.event)
        target = self._on_device(buffer.memory)
        if target is not buffer.memory:
            target.copy_(buffer.memory, non_blocking=True)
        found, rest = {}, iter(outcomes)
        for (share, *_), count in zip(block.pieces, counts, strict=True):
            found[share.name] = next((one for one in [next(rest) for _ in range(count)] if not one), DONE)
        whole = summed(found)
        for piece in block.pieces:
            share, where, first, blank = piece
            for start, stop in blank:
                share.state.blank(where, start, stop)
            if share.need.kind == "point" and not whole:  # a state is of use only beside all of its tokens
                found[share.name] = found[share.name] and missed(Reason.CANCELLED, "its tokens did not come")
            elif found[share.name]:
                if share.need.kind == "point":
                    block.begun.append(piece)
                share.state.write(where, first, share.buffer(target))
            else:
                share.state.blank(where, first, first + self._tokens)
        self._memory.wait(self._memory.record())
        return found

    def _own_parts(self, block: Block, buffer: Tensor) -> list[tuple[PartRef, Tensor]]:
        items = []
        for share, *_ in block.pieces:
            items += share.items(block.key, buffer, share.turns(block.number))
        return items

    def _mover(self, buffer: HostBuffer) -> RegisteredMemory | BlockStore:
        return self._store if buffer.registered is None else buffer.registered

    def _on_device(self, buffer: Tensor) -> Tensor:
        """Where objects are gathered: the host buffer itself, or a buffer of this worker on the pool's device."""
        if self._device.type == "cpu":
            return buffer
        if not hasattr(self._own, "buffer"):
            self._own.buffer = torch.empty(self._block_bytes, dtype=torch.uint8, device=self._device)
        found: Tensor = self._own.buffer
        return found


def _bytes(items: Sequence[tuple[PartRef, Tensor]], outcomes: Sequence[Outcome]) -> int:
    return sum(ref.part.nbytes for (ref, _), one in zip(items, outcomes, strict=True) if one)


def answers(operation: str, given: Sequence[Outcome], items: Sequence[object]) -> Sequence[Outcome]:
    """What a store answered, where it is an outcome for each of the items.

    Raises:
        TypeError: it is something else, and believed nothing.
    """
    found = list(given)
    wrong = [one for one in found if not isinstance(one, Outcome)]
    if wrong:
        raise TypeError(f"{operation} answered {wrong[0]!r} for a part: expected an Outcome")
    if len(found) != len(items):
        raise TypeError(f"{operation} answered for {len(found)} of {len(items)} parts: expected an Outcome for each")
    return found


def failed(what: str, block: Block, error: BaseException) -> Outcome:
    """The outcome of an exception that came of a block on a worker."""
    return failure(error, f"{what} of block {block.number} of a {block.transfer.kind} failed")


def failure(error: BaseException, where: str) -> Outcome:
    """The outcome of an exception; logs it, whatever its text and the log come to: somebody waits for an outcome."""
    with suppress(Exception):
        logger.error(where, exc_info=error)
    try:
        text = str(error)
    except Exception as other:
        text = f"its text failed with {type(other).__name__}"
    return missed(Reason.FAILED, f"{type(error).__name__}: {text}")
