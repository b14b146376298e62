"""The state of some published models, written out as literals, one rank each."""

from statehal.spec import Attention, ConvRecurrent, Latent, Spec

MIB = 1024 * 1024


def ending(layers: int, period: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The last layer of each period, and the others."""
    last = [layer for layer in range(layers) if layer % period == period - 1]
    return tuple(last), tuple(layer for layer in range(layers) if layer not in last)


GPT_OSS_20B: list[Spec] = [
    Attention("full", ending(24, 2)[0], 8, 64, "bfloat16"),
    Attention("swa", ending(24, 2)[1], 8, 64, "bfloat16", window=128),
]
GEMMA3_27B: list[Spec] = [
    Attention("full", ending(62, 6)[0], 16, 128, "bfloat16"),
    Attention("swa", ending(62, 6)[1], 16, 128, "bfloat16", window=1024),
]
QWEN3_NEXT_TP4: list[Spec] = [
    Attention("full", ending(48, 4)[0], 1, 256, "bfloat16"),
    ConvRecurrent("gdn", ending(48, 4)[1], 2048, 4, "bfloat16", state=(8, 128, 128), state_dtype="float32"),
]
KIMI_LINEAR_TP4: list[Spec] = [
    Latent("mla", (3, 7, 11, 15, 19, 23, 26), 512, 64, "bfloat16"),
    ConvRecurrent("kda", tuple(range(20)), 3072, 4, "bfloat16", state=(8, 128, 128), state_dtype="float32"),
]
MIMO: list[Spec] = [  # one layer of six is full attention
    Attention("full", ending(48, 6)[0], 4, 192, "bfloat16", v_head_dim=128),
    Attention("swa", ending(48, 6)[1], 8, 192, "bfloat16", v_head_dim=128, window=128),
]
MAMBA2_2_7B = ConvRecurrent("ssm", tuple(range(64)), 5376, 4, "bfloat16", state=(80, 64, 128), state_dtype="float32")
SHARED_ATTENTION = Attention("full", tuple(range(64, 73)), 32, 80, "bfloat16")
