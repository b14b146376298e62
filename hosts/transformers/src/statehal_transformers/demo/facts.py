"""What a session found, as plain data: what ``--json`` prints and the report lays out."""

from dataclasses import asdict
from typing import Any

from statehal_transformers.demo.generation import Run
from statehal_transformers.demo.options import Options
from statehal_transformers.demo.session import Session, Stored


def verdict(session: Session) -> str:
    """``equal``, ``different``, or ``fault unnoticed``."""
    equal = session.comparison.equal
    return "fault unnoticed" if session.fault and equal else "equal" if equal else "different"


def facts(session: Session, options: Options) -> dict[str, Any]:
    """Everything that the demo says of one model, JSON-ready."""
    model = session.loaded.model
    return {
        "verdict": verdict(session),
        "model": {
            "name": session.loaded.name,
            "type": model.config.model_type,
            "layers": session.host.num_layers,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": str(model.device),
            "note": session.loaded.note,
        },
        "backend": _backend(session),
        "plan": _plan(session),
        "convolves": bool(session.host.modules),
        "seed": options.seed,
        "pooled": _run(session.pooled, session.pooled_bytes) | {"pages": session.pages},
        "transformers": _run(session.dynamic, session.dynamic_bytes),
        "comparison": asdict(session.comparison) | {"equal": session.comparison.equal},
        "fault": asdict(session.fault) if session.fault else None,
        "texts": _texts(session, options),
    } | ({"store": _stored(session.stored)} if session.stored else {})


def _backend(session: Session) -> dict[str, Any]:
    selection = session.host.binding.selection
    return {"name": selection.name, "device": selection.device, "reason": selection.reason}


def _plan(session: Session) -> dict[str, Any]:
    plan = session.host.plan
    return {
        "page_size": plan.page_size,
        "total_bytes": plan.total_bytes,
        "largest_request": plan.largest_request(),
        "subpools": {
            name: {
                "layers": len(sub.spec.layers),
                "kind": "slots" if sub.spec.kind == "slots" else "tokens",
                "window": getattr(sub.spec, "window", None),
                "pages": sub.max_pages,
                "page_bytes": sub.layout.page_bytes,
                "bytes_per_token": sub.bytes_per_token,
                "waste": sub.waste,
            }
            for name, sub in plan.subpools.items()
        },
    }


def _run(run: Run, state_bytes: int) -> dict[str, Any]:
    return {
        "tokens_per_second": run.tokens_per_second,
        "seconds": run.seconds,
        "new_tokens": sum(map(len, run.tokens)),
        "state_bytes": state_bytes,
    }


def _stored(stored: Stored) -> dict[str, Any]:
    prompts = [asdict(one) | {"seconds": seconds} for one, seconds in zip(stored.reuse, stored.seconds, strict=True)]
    return {
        "directory": stored.directory,
        "object_tokens": stored.object_tokens,
        "asked": sum(one.asked for one in stored.reuse),
        "reused": sum(one.reused for one in stored.reuse),
        "prompts": prompts,
        "counts": stored.counts,
    }


def _texts(session: Session, options: Options) -> list[dict[str, Any]]:
    decode = session.loaded.decode
    rows = zip(options.prompts, session.batch.lengths, session.pooled.tokens, session.dynamic.tokens, strict=True)
    return [
        {"prompt": prompt, "prompt_tokens": length, "pooled": decode(ours), "transformers": decode(theirs)}
        for prompt, length, ours, theirs in rows
    ]
