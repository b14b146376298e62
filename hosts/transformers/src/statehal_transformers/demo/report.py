"""The demo's findings for a person to read."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def report(console: Console, found: dict[str, Any]) -> None:
    """Print what was found, verdict last."""
    _model(console, found)
    if "hybrid" in found:
        console.rule()
        _model(console, found["hybrid"])
    if "measured" in found:
        console.rule()
        _measurements(console, found["measured"])


def _model(console: Console, found: dict[str, Any]) -> None:
    model, backend = found["model"], found["backend"]
    if model["note"]:
        console.print(f"[yellow]{escape(model['note'])}[/]\n[yellow]running {model['name']} instead[/]\n")
    lines = Table.grid(padding=(0, 2))
    lines.add_row(
        "model",
        f"{escape(model['name'])} ({model['type']}, {model['layers']} layers, {model['parameters'] / 1e6:.1f} M "
        f"weights, {model['dtype']} on {model['device']})",
    )
    lines.add_row("backend", f"{backend['name']}: {escape(backend['reason'])}")
    for line in _plan(found["plan"]):
        lines.add_row(*line)
    console.print(lines, "")
    for text in found["texts"]:
        console.print(f"[bold]> {_shown(_ends(text['prompt']))}[/] [dim]({text['prompt_tokens']} tokens)[/]")
        console.print(_shown(text["pooled"]))
        if text["pooled"] != text["transformers"]:
            console.print(f"[red]transformers' own cache:[/] {_shown(text['transformers'])}")
    console.print("", _measured(found), "")
    if "store" in found:
        _store(console, found["store"])
    _verdict(console, found)


def _plan(plan: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("pool", f"{_bytes(plan['total_bytes'])}, pages of {plan['page_size']} tokens")]
    for name, sub in plan["subpools"].items():
        if sub["kind"] == "slots":
            kept, pages = "conv and recurrent state", f"{sub['pages']} slots of {_bytes(sub['page_bytes'])}"
        else:
            kept = "full attention" if sub["window"] is None else f"window of {sub['window']}"
            pages = f"{sub['pages']} pages of {_bytes(sub['page_bytes'])}, {sub['bytes_per_token']:.0f} bytes a token"
        lines.append(("", f"{name}: {sub['layers']} layers, {kept}, {pages}, {sub['waste']:.1%} waste"))
    return lines


def _measurements(console: Console, measured: dict[str, Any]) -> None:
    decode = measured["decode"]
    ways = {"pooled": "on the pool", "pages": "with attention that reads the pool's pages"}
    costs = [
        f"{decode[way]['seconds'] * 1e3:.0f} ms {title}, {decode[way]['speed_ratio']:.2f} of that speed"
        for way, title in ways.items()
        if way in decode
    ]
    console.print(
        f"decoding, batch {decode['batch']}, {decode['context']} tokens of context, {decode['rounds']} rounds in turn: "
        f"{decode['transformers']['seconds'] * 1e3:.0f} ms a step with transformers' cache, {'; '.join(costs)}"
    )
    for name, what in (("beams", "4 beams"), ("windows", "sliding windows")):
        held = measured[name]
        most, last = (
            [held[f"{cache}_{when}_bytes"] for cache in ("pooled", "transformers")] for when in ("most", "last")
        )
        console.print(
            f"{what} after a prompt of {held['prompt']} tokens, state held after a step: {_bytes(most[0])} at most and "
            f"{_bytes(last[0])} at the end in the pool, {_bytes(most[1])} and {_bytes(last[1])} in transformers' cache"
        )


def _measured(found: dict[str, Any]) -> Table:
    table = Table("", "tokens/s", "seconds", "state", "pages and slots in use")
    for column in table.columns[1:]:
        column.justify = "right"
    pages = ", ".join(f"{name} {used}" for name, used in found["pooled"]["pages"].items())
    for title, run, used in (("pooled cache", found["pooled"], pages), ("transformers'", found["transformers"], "")):
        speed, seconds = f"{run['tokens_per_second']:.1f}", f"{run['seconds']:.2f}"
        table.add_row(title, speed, seconds, _bytes(run["state_bytes"]), used)
    return table


def _store(console: Console, store: dict[str, Any]) -> None:
    for number, one in enumerate(store["prompts"], start=1):
        why = f"; not more, because {escape(one['why'])}" if one["why"] else ""
        console.print(
            f"prompt {number}: {one['reused']} of {one['asked']} tokens came from the store; whole blocks of "
            f"{store['object_tokens']} before its last token are {one['most']}, and took {one['seconds']:.2f} s{why}"
        )
    console.print(
        f"store: [bold]{store['reused']} of {store['asked']}[/] prompt tokens did not have to be computed "
        f"({escape(store['directory'])})"
    )


def _verdict(console: Console, found: dict[str, Any]) -> None:
    compared, fault = found["comparison"], found["fault"]
    if fault:
        console.print(
            f"fault: byte {fault['offset']} of the pool went from {fault['before']:#04x} to {fault['after']:#04x}, in "
            f"a value of layer {fault['layer']}, token {fault['token']}, sub-pool {fault['subpool']}"
        )
    passes = ", in the same passes" if "store" in found else ""
    convolution = ", convolved by the backend on both sides" if found["convolves"] else ""
    if compared["equal"]:
        console.print(
            f"[green]equal[/]: {compared['logits']} logits of {compared['steps'][0]} steps agree bit for bit between "
            f"the pooled cache and transformers' own{convolution}{passes}"
        )
    elif compared["difference"]:
        first = compared["difference"]
        console.print(
            f"[red]different[/]: from step {first['step']} on, first in prompt {first['prompt'] + 1}: "
            f"{first['logits']} logits of the step differ, by up to {first['largest']:.3g}"
        )
    else:
        console.print(f"[red]different[/]: {compared['steps'][0]} steps against {compared['steps'][1]}")


def _ends(text: str, most: int = 200) -> str:
    """The beginning and the end of a long text."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def _shown(text: str) -> str:
    """Text of a model or a user, with control characters spelled out: none of it moves the cursor."""
    return escape("".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text))


def _bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
