"""Parts and payloads that the checks of stores use: small, of every kind, and told apart by their bytes."""

from hashlib import sha256

from statehal.portability.grouping import Grouping
from statehal.portability.parts import parts
from statehal.portability.store import BlockStore, Namespace, PartRef, block_key
from statehal.spec import Attention, ConvRecurrent, Latent, Spec

ATTENTION = Attention("full", (0, 2), kv_heads=4, head_dim=8, dtype="bfloat16", v_head_dim=4)
SPECS: tuple[Spec, ...] = (
    ATTENTION,
    Attention("swa", (1,), kv_heads=2, head_dim=8, dtype="float8_e4m3fn", window=16, scales="per_token_head"),
    Latent("mla", (0, 1), kv_lora_rank=16, qk_rope_head_dim=8, dtype="float16"),
    ConvRecurrent("gdn", (3,), 16, 4, "bfloat16", sections=(4, 4, 8), section_heads=(2, 2, 2), state=(2, 4, 4)),
)


def block(number: int, spec: Spec = ATTENTION, *, model: str = "checks") -> list[PartRef]:
    """The parts of a block."""
    grouping = Grouping.of([spec], object_tokens=4)
    namespace = Namespace.of(spec, model=model, revision="1", grouping=grouping)
    key = block_key([number])
    return [PartRef(namespace, key, part) for part in parts(spec, grouping)]


def payload(ref: PartRef) -> bytes:
    """Bytes of this part and of no other."""
    name = f"{ref.namespace.digest}/{ref.key}/{ref.part.id}".encode()
    nbytes = ref.part.nbytes
    return b"".join(sha256(name + index.to_bytes(4)).digest() for index in range(1 + nbytes // 32))[:nbytes]


def stored(store: BlockStore, *refs: PartRef) -> None:
    """Store parts, all of which must be taken."""
    outcomes = store.put([(ref, payload(ref)) for ref in refs])
    assert all(outcomes), f"put of {len(refs)} parts: {[str(one.reason) for one in outcomes]}"


def found(store: BlockStore, *refs: PartRef) -> list[str]:
    """Of each part ``"right"``, ``"wrong"``, or the reason of its miss."""
    memory = [bytearray(b"\xa5" * ref.part.nbytes) for ref in refs]
    outcomes = store.get(list(zip(refs, memory, strict=True)))
    assert len(outcomes) == len(refs), f"get of {len(refs)} parts gave {len(outcomes)} outcomes"
    return [
        str(outcome.reason) if not outcome else "right" if bytes(got) == payload(ref) else "wrong"
        for outcome, ref, got in zip(outcomes, refs, memory, strict=True)
    ]
