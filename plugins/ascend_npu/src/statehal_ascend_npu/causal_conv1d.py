"""Causal conv1d by CANN's operator, with everything that the operator leaves to its caller."""

from typing import Literal

import torch
from torch import Tensor

from statehal.arguments import ConvArguments
from statehal.hookspecs import CausalConv1dRequest, Prepared
from statehal.ids import KernelIds
from statehal.spec import ConvRecurrent
from statehal_ascend_npu.conv.checkpoints import Checkpoints
from statehal_ascend_npu.conv.convolve import gathered
from statehal_ascend_npu.conv.launches import Launches, zero_rows
from statehal_ascend_npu.conv.plans import Gather, Plan, prefill_plan, step_plan
from statehal_ascend_npu.conv.slots import Slots
from statehal_ascend_npu.conv.steps import StepCache
from statehal_ascend_npu.conv.weights import Taps, taps
from statehal_ascend_npu.operators.conv1d import DRAFTS_WIDTH, Conv1d, Sequences, choose
from statehal_ascend_npu.triton_support import has_kernels


class AscendCausalConv1d:
    """Implements ``statehal.hookspecs.CausalConv1d``.

    A layer whose weights the operator takes is convolved by the operator in every method: in one launch where one of
    its modes does what is asked, and else over gathered inputs. Any other layer (width 5 and up, windows of four bytes,
    weights of another dtype than the window) is convolved by torch in every method.
    """

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: CausalConv1dRequest) -> None:
        sub = request.subpool
        assert isinstance(sub.spec, ConvRecurrent), "the hook answers None for other specs"
        device = sub.buffer.device
        self._spec, self._window = sub.spec, getattr(torch, sub.spec.dtype)
        self._arguments = ConvArguments(sub)
        self._operator = choose()
        self._slots = Slots(sub, sub.spec)
        self._kernels = has_kernels(device)
        channels = self._slots.channels
        launches = Launches(sub, sub.spec, channels, rollback=self._slots.rollback) if self._kernels else None
        self._checkpoints = Checkpoints(self._slots, launches)
        self._steps: StepCache[Plan] = StepCache(device)
        self._weights: dict[int, tuple[Prepared[Taps], bool]] = {}
        # without drafts a window begins with its history, wherever the operator would look for it
        drafts = sub.spec.verify_tokens == 1 or sub.spec.width == DRAFTS_WIDTH
        self._updates = self._operator is not None and self._operator.updates and drafts

    def prepare(
        self, layer: int, weight: Tensor, bias: Tensor | None = None, *, activation: Literal["silu"] | None = None
    ) -> None:
        self._arguments.prepare(layer, weight, bias, activation)

        def make(weight: Tensor, bias: Tensor | None) -> Taps:
            self._arguments.weights(layer, weight, bias)
            return taps(weight, bias, self._slots.channels, self._window, operator=self._operator is not None)

        self._weights[layer] = Prepared(make, weight, bias), activation == "silu"

    def prefill(
        self,
        layer: int,
        x: Tensor,
        query_start_loc: Tensor,
        slots: KernelIds,
        has_initial_state: Tensor | None = None,
        *,
        initial_slots: KernelIds | None = None,
        snapshots: tuple[Tensor, Tensor, KernelIds] | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        ids, source, targets = self._arguments.prefill(
            layer, x, query_start_loc, slots, has_initial_state, initial_slots=initial_slots, snapshots=snapshots,
            out=out,
        )  # fmt: skip
        weights, silu = self._of(layer)
        rows, operator = self._padded(x), self._operator if weights.native else None
        plan = self._steps.get(
            layer,
            f"prefill {len(x)} {weights.native}",
            (query_start_loc, ids, source, has_initial_state),
            lambda: prefill_plan(self._slots, query_start_loc, len(x), ids, source, has_initial_state, operator),
        )
        history = self._slots.live_rows(layer, plan.source, plan.first, plan.readable)
        if snapshots is not None and targets is not None:
            self._snapshot(layer, plan, torch.cat([history.flatten(0, 1), rows]), snapshots, targets)
        self._checkpoints.skip(layer, plan.slots, plan.live & (plan.packed.length == 0), plan.source)
        if isinstance(plan.work, Sequences):
            # the operator goes on from the first rows, wherever the live ones were; empty sequences are not told to it
            self._slots.place(layer, plan.slots, history, plan.live)
        return self._finished(self._convolved(layer, rows, history, plan, operator, weights, silu), plan.dead, x, out)

    def decode(self, layer: int, x: Tensor, slots: KernelIds, *, out: Tensor | None = None) -> Tensor:
        ids = self._arguments.decode(layer, x, slots, out)
        return self._step(layer, x, ids, None, None, 1, out)

    def verify(
        self,
        layer: int,
        x: Tensor,
        slots: KernelIds,
        *,
        query_start_loc: Tensor | None = None,
        parents: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        ids = self._arguments.verify(layer, x, slots, query_start_loc=query_start_loc, parents=parents, out=out)
        return self._step(layer, x, ids, query_start_loc, parents, self._spec.verify_tokens, out)

    def commit(
        self,
        slots: KernelIds,
        accepted: Tensor,
        *,
        path: Tensor | None = None,
        state_slots: KernelIds | None = None,
        track_slots: KernelIds | None = None,
        track_accepted: Tensor | None = None,
    ) -> None:
        ids, states, targets = self._arguments.commit(
            slots, accepted, path=path, state_slots=state_slots, track_slots=track_slots, track_accepted=track_accepted
        )
        self._steps.clear()
        drafts = self._spec.verify_tokens
        accepted = accepted.long().clamp(1, drafts)
        path = None if path is None else path.long().clamp(0, drafts - 1)
        if targets is not None and track_accepted is not None:
            self._checkpoints.track(ids, targets, track_accepted, accepted, path, states)
        self._checkpoints.commit(ids, accepted, path, states)

    def copy_slots(self, src: KernelIds, dst: KernelIds) -> None:
        source, target = self._arguments.copy_slots(src, dst)
        self._steps.clear()
        self._checkpoints.copy(source, target)

    def zero_slots(self, slots: KernelIds) -> None:
        ids = self._arguments.zero_slots(slots)
        self._steps.clear()
        self._checkpoints.zero(ids)

    def read_state(self, slots: KernelIds) -> Tensor:
        live, safe = self._slots.find(self._arguments.read_state(slots))
        first = self._slots.first_live(safe)
        read = [self._slots.live_rows(layer, safe, first, live) for layer in self._spec.layers]
        return torch.stack(read)[..., : self._spec.channels]

    def _step(
        self, layer: int, x: Tensor, ids: Tensor, start: Tensor | None, parents: Tensor | None, most: int,
        out: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Convolve up to ``most`` tokens a request, and keep history and tokens from row 0 of the window on."""
        weights, silu = self._of(layer)
        rows, operator = self._padded(x), self._operator if weights.native else None
        update = operator if self._updates and parents is None else None
        plan = self._steps.get(
            layer,
            f"{len(x)} {most} {update is not None}",
            (ids, start, parents),
            lambda: step_plan(self._slots, start, len(x), ids, parents, most, update),
        )
        history = None
        if isinstance(plan.work, Gather):
            history = self._slots.live_rows(layer, plan.slots, plan.first, plan.live)
        return self._finished(self._convolved(layer, rows, history, plan, operator, weights, silu), plan.dead, x, out)

    def _convolved(
        self, layer: int, rows: Tensor, history: Tensor | None, plan: Plan, operator: Conv1d | None, weights: Taps,
        silu: bool,
    ) -> Tensor:  # fmt: skip
        """Outputs ``[tokens, channels]``, padded; and the windows of the layer as the step leaves them."""
        work = plan.work
        if isinstance(work, Sequences):
            assert operator is not None
            state = self._slots.dense[layer]
            return operator(rows, weights.weight, state, weights.bias, work, silu=silu) if len(rows) else rows
        assert history is not None
        joined = torch.cat([history.flatten(0, 1), rows])
        result = gathered(operator, joined, work.taps, weights, silu=silu)
        self._slots.place(layer, plan.slots, joined[work.kept], work.keep)
        return result

    def _snapshot(
        self, layer: int, plan: Plan, joined: Tensor, snapshots: tuple[Tensor, Tensor, KernelIds], targets: Tensor
    ) -> None:
        """Save windows on the way, at the cursors of the slots that receive them."""
        sequence, tokens, count = snapshots[0].long(), snapshots[1].long(), plan.slots.shape[0]
        at = sequence.where((sequence >= 0) & (sequence < count), count)  # past the last: padding without tokens
        length, live = (torch.cat([one, one.new_zeros(1)])[at] for one in (plan.packed.length, plan.live))
        due = live & (tokens >= 0) & (tokens <= length)
        known, safe = self._slots.find(targets.where(due, 0))
        self._slots.save(layer, safe, joined[plan.packed.last(at, tokens)], known)

    def _of(self, layer: int) -> tuple[Taps, bool]:
        prepared, silu = self._weights[layer]
        return prepared.get(), silu

    def _padded(self, x: Tensor) -> Tensor:
        """Inputs, contiguous, with as many channels as a window has: those of the spec where it is a multiple of 16."""
        x, more = x.detach(), self._slots.channels - x.shape[1]
        return torch.nn.functional.pad(x, (0, more)) if more else x.contiguous()

    def _finished(self, result: Tensor, dead: Tensor, x: Tensor, out: Tensor | None) -> Tensor:
        """Outputs of x's dtype, in ``out`` or a new tensor, with zeros in rows that are no token of a request."""
        made = result[:, : x.shape[1]]
        made = made.clone() if made.data_ptr() == x.data_ptr() else made
        if self._kernels and made.dtype == x.dtype:
            zero_rows(made, dead)
        else:
            made = made.masked_fill_(dead[:, None], 0)
        made = made.to(x.dtype)
        return made.contiguous() if out is None else out.detach().copy_(made)
