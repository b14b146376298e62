"""What the table has: sizes, writers and readers; no torch."""

from typing import Any

BLOCK = 64
PROMPT = 300
NEW_TOKENS = 24
FAMILIES = ("llama", "gemma3", "gpt_oss", "deepseek_v3", "qwen3_next", "lfm2")
WRITER: dict[str, Any] = {"layout": "page-major", "page_size": 16, "backend": "reference"}
READERS: tuple[dict[str, Any], ...] = (
    {"layout": "token-major", "page_size": 16, "backend": "reference"},
    {"layout": "page-major, HND", "page_size": 16, "backend": "reference"},
    {"layout": "page-major", "page_size": 64, "backend": "reference"},
    {"layout": "token-major", "page_size": 64, "backend": "cpu"},
    {"layout": "page-major, HND", "page_size": 64, "backend": "cpu"},
)
RANK_READERS: tuple[dict[str, Any], ...] = (
    {"tensor": 1, "layout": "token-major", "page_size": 64},
    {"tensor": 2, "layout": "page-major, HND", "page_size": 64},
    {"tensor": 4, "layout": "token-major", "page_size": 16},
)


def bar(tokens: int) -> int:
    """All whole blocks but the one with the last token, which is always computed."""
    return (tokens - 1) // BLOCK * BLOCK
