"""Stores with one fault each, beside the check that must notice it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from statehal.portability.store import BufferLike, Outcome, PartRef, Reason
from statehal.portability.store.buffers import byte_view
from statehal.portability.store.outcome import DONE, missed
from store.memory_store import MemoryStore, Name


@dataclass(frozen=True)
class Mutant:
    """A fault, in words; the check that must fail by its assertion; the class that has it."""

    name: str
    check: str
    kind: Callable[[dict[Name, bytes]], MemoryStore]


def store(**methods: Any) -> type[MemoryStore]:
    """The store with other methods."""
    return type("Faulty", (MemoryStore,), methods)


def last_byte_lost(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    return self.read(ref, view) and (view.__setitem__(-1, 0) or DONE)


def a_kind_is_cut(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    outcome = self.read(ref, view)
    if ref.part.kind == "point":
        view[: len(view) // 2] = bytes(len(view) // 2)
    return outcome


def own_values(values: dict[Name, bytes]) -> MemoryStore:
    return MemoryStore(dict(values))


class KeepsBuffers(MemoryStore):
    """Writes when somebody reads."""

    def __init__(self, values: dict[Name, bytes]) -> None:
        super().__init__(values)
        self.kept: list[tuple[PartRef, memoryview]] = []

    def put_one(self, ref: PartRef, view: memoryview) -> Outcome:
        self.kept.append((ref, view))
        return DONE

    def get_one(self, ref: PartRef, view: memoryview) -> Outcome:
        for kept, payload in self.kept:
            super().put_one(kept, payload)
        self.kept.clear()
        return self.read(ref, view)


def overwrites(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    there = self.read(ref, memoryview(bytearray(ref.part.nbytes)))
    if there.reason is Reason.NEWER_FORMAT:
        return there
    self.values[self.name(ref)] = self.encode(ref, view)
    return DONE


def overwrites_later_versions(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    if not self.read(ref, memoryview(bytearray(ref.part.nbytes))):
        self.values[self.name(ref)] = self.encode(ref, view)
    return DONE


def refuses_twice(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    if self.name(ref) in self.values:
        return missed(Reason.FAILED, "it is there")
    self.values[self.name(ref)] = self.encode(ref, view)
    return DONE


def deletes_blocks(self: MemoryStore, ref: PartRef) -> Outcome:
    found = [name for name in self.values if name[:2] == self.name(ref)[:2]]
    there = self.name(ref) in found
    for name in found:
        del self.values[name]
    return DONE if there else missed(Reason.ABSENT)


def writes_past(self: MemoryStore, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
    outcomes = []
    for ref, buffer in items:
        view = byte_view(buffer, ref.part.nbytes, ref, writable=True)
        outcomes.append(self.get_one(ref, view))
        if isinstance(buffer, memoryview) and isinstance(buffer.obj, bytearray) and len(buffer.obj) > len(view):
            buffer.obj[-1] = 0
    return self.count("get", outcomes)


def no_key(self: MemoryStore, ref: PartRef) -> Name:
    return ref.namespace.digest, "", ref.part.id


def no_part(self: MemoryStore, ref: PartRef) -> Name:
    return ref.namespace.digest, ref.key, ref.part.id.split(".")[0]


def no_namespace(self: MemoryStore, ref: PartRef) -> Name:
    return "", ref.key, ref.part.id


def sorted_by_part(self: MemoryStore, refs: Sequence[PartRef]) -> list[Outcome]:
    return self.count("exists", [self.exists_one(ref) for ref in sorted(refs, key=self.name)])


def stops_at_a_miss(self: MemoryStore, refs: Sequence[PartRef]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for ref in refs:
        outcomes.append(self.exists_one(ref))
        if not outcomes[-1]:
            break
    return self.count("exists", outcomes)


def none_is_a_batch(self: MemoryStore, refs: Sequence[PartRef]) -> list[Outcome]:
    return [self.delete_one(ref) for ref in refs] or [DONE]


def one_of_a_kind(self: MemoryStore, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
    distinct = {self.name(ref): (ref, buffer) for ref, buffer in items}
    return MemoryStore.get(self, list(distinct.values()))


def padded(self: MemoryStore, items: Sequence[tuple[PartRef, Any]]) -> list[Outcome]:
    fitted = [(ref, bytes(buffer).ljust(ref.part.nbytes, b"\0")[: ref.part.nbytes]) for ref, buffer in items]
    return MemoryStore.put(self, fitted)


def one_by_one(self: MemoryStore, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
    return [MemoryStore.put(self, [item])[0] for item in items]


def uncounted(self: MemoryStore, operation: str, outcomes: list[Outcome]) -> list[Outcome]:
    self.counted[operation]["done"] += len(outcomes)
    return outcomes


class OneScratch(MemoryStore):
    """Reads through memory that all threads share."""

    scratch = bytearray(1 << 16)

    def get_one(self, ref: PartRef, view: memoryview) -> Outcome:
        outcome = self.read(ref, memoryview(self.scratch)[: len(view)])
        time.sleep(0.0002)
        view[:] = self.scratch[: len(view)]
        return outcome


class Trusting(MemoryStore):
    """Takes what is stored as it is: the payload is what follows the header that it would have written."""

    def read(self, ref: PartRef, view: memoryview) -> Outcome:
        data = self.values.get(self.name(ref))
        if data is None:
            return missed(Reason.ABSENT)
        payload = data[-len(view) :].ljust(len(view), b"\0")
        view[:] = payload
        return DONE


class LengthAlone(Trusting):
    """Looks at the length."""

    def read(self, ref: PartRef, view: memoryview) -> Outcome:
        there = self.exists_one(ref)
        return Trusting.read(self, ref, view) if there else there


def blind(self: MemoryStore, ref: PartRef) -> Outcome:
    return DONE if self.name(ref) in self.values else missed(Reason.ABSENT)


def removes_what_does_not_fit(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    outcome = self.read(ref, view)
    if outcome.reason in (Reason.MISPLACED, Reason.CORRUPT):
        del self.values[self.name(ref)]
    return outcome


def all_is_corrupt(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    outcome = self.read(ref, view)
    return outcome or replace(outcome, reason=Reason.CORRUPT)


def present_is_enough(self: MemoryStore, ref: PartRef, view: memoryview) -> Outcome:
    self.values.setdefault(self.name(ref), self.encode(ref, view))
    there = self.read(ref, memoryview(bytearray(ref.part.nbytes)))
    return there if there.reason is Reason.NEWER_FORMAT else DONE


MUTANTS = [
    Mutant("the last byte is lost", "contents/parts_come_back_as_they_were_stored", store(get_one=last_byte_lost)),
    Mutant("half of a state is lost", "contents/parts_come_back_as_they_were_stored", store(get_one=a_kind_is_cut)),
    Mutant("every object has values of its own", "contents/another_process_finds_them", own_values),
    Mutant("buffers are written later", "contents/a_buffer_is_not_kept", KeepsBuffers),
    Mutant("what is there is written again", "contents/what_is_there_is_not_written_again", store(put_one=overwrites)),
    Mutant("storing again is refused", "contents/what_is_there_is_not_written_again", store(put_one=refuses_twice)),
    Mutant("a delete takes the block", "contents/deleted_parts_are_gone", store(delete_one=deletes_blocks)),
    Mutant("a delete does nothing", "contents/deleted_parts_are_gone", store(delete_one=lambda self, ref: DONE)),
    Mutant("a byte past the buffer is written", "contents/payloads_are_read_into_the_given_memory_and_nowhere_else",
           store(get=writes_past)),
    Mutant("the key is no part of the name", "names/keys_are_apart", store(name=no_key)),
    Mutant("heads are no part of the name", "names/parts_of_a_block_are_apart", store(name=no_part)),
    Mutant("the namespace is no part of the name", "names/namespaces_are_apart", store(name=no_namespace)),
    Mutant("outcomes are sorted", "batches/outcomes_are_in_order", store(exists=sorted_by_part)),
    Mutant("a miss ends the batch", "batches/outcomes_are_in_order", store(exists=stops_at_a_miss)),
    Mutant("no items give an outcome", "batches/an_empty_batch_is_nothing", store(delete=none_is_a_batch)),
    Mutant("repeated items are dropped", "batches/one_part_twice_in_a_batch", store(get=one_of_a_kind)),
    Mutant("payloads are padded", "batches/a_buffer_that_does_not_fit_is_refused_before_anything_is_done",
           store(put=padded)),
    Mutant("a batch is refused when half of it is done",
           "batches/a_buffer_that_does_not_fit_is_refused_before_anything_is_done", store(put=one_by_one)),
    Mutant("a miss counts as done", "batches/counts_tell_hits_and_misses_by_reason", store(count=uncounted)),
    Mutant("threads share the memory that is read into", "batches/threads_do_not_mix", OneScratch),
    Mutant("nothing is checked", "damage/a_flipped_bit_is_a_miss", LengthAlone),
    Mutant("a short part is padded", "damage/a_part_of_another_length_is_a_miss", Trusting),
    Mutant("exists looks at no length", "damage/a_part_of_another_length_is_a_miss", store(exists_one=blind)),
    Mutant("the name in the part is not read", "damage/a_part_in_the_place_of_another_is_a_miss", LengthAlone),
    Mutant("what does not fit is removed", "damage/a_part_in_the_place_of_another_is_a_miss",
           store(get_one=removes_what_does_not_fit)),
    Mutant("a later version is called corrupt", "damage/a_later_version_is_a_miss_and_stays",
           store(get_one=all_is_corrupt)),
    Mutant("a later version is replaced", "damage/a_later_version_is_a_miss_and_stays",
           store(put_one=overwrites_later_versions)),
    Mutant("what lies there is enough", "damage/a_damaged_part_can_be_stored_again", store(put_one=present_is_enough)),
]  # fmt: skip
