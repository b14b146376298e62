"""The page of the table, from what the processes printed."""

from typing import Any

from offload_table.rows import BLOCK, NEW_TOKENS, PROMPT, WRITER, bar

TEXT = f"""# What a second process does not compute

Made by `make offload`, with transformers {{transformers}} and torch {{torch}}. One process writes, and ends. Every
line is of other processes, which share a `FileStore` with it and nothing else.

The writer has one rank, the {WRITER["layout"]} layout, pages of {WRITER["page_size"]} and the
{WRITER["backend"]} backend. Blocks are of {BLOCK} tokens. Of a prompt of {PROMPT} all whole ones before the last token
can be reused, {bar(PROMPT)} tokens.

## Whole models

Tiny models with random weights, in float32. A prompt is restored, its rest computed, and {NEW_TOKENS} tokens generated.
Beside it the same process computes all of it with transformers' own cache and convolutions, in one pass. `difference`
is the largest of any logit of any step. The last column says whether all logits are, bit for bit, those of the process
that wrote, which read nothing: with its backend they must be; another convolves in another order of sums.

| family | layout | page | backend | reused / asked | tokens | difference | the writer's bits |
|---|---|---|---|---|---|---|---|
{{models}}

## Ranks, and storage in fp8

The same without a model: the rows of every rank, compared byte for byte with what was given to the writer. Of a
sub-pool with a window, what the next token attends to; of conv and recurrent state, the live rows of each section.

| ranks | layout | page | sub-pool | reused / asked | bytes compared | that differ |
|---|---|---|---|---|---|---|
{{ranks}}
"""


def render(found: dict[str, Any]) -> str:
    """The page."""
    models = [
        f"| {row['family']} | {row['layout']} | {row['page_size']} | {row['backend']} "
        f"| {row['reused']} / {row['asked']} "
        f"| {'equal' if row['tokens_equal'] else '**differ**'} | {row['difference']:.1e} "
        f"| {'yes' if row['writers_bits'] else 'no'} |"
        for row in found["models"]
    ]
    ranks = [
        f"| {row['tensor']} | {row['layout']} | {row['page_size']} | {row['subpool']} "
        f"| {row['reused']} / {row['asked']} | {row['bytes']:,} | {row['wrong']} |"
        for row in found["ranks"]
    ]
    return TEXT.format(models="\n".join(models), ranks="\n".join(ranks), **found["versions"])
