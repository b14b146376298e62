"""What a graph of ``torch.compile`` must not hold."""

import torch


def outside(what: str, why: str) -> None:
    """Refuse to be traced: ``fullgraph=True`` makes an error of it, else the graph ends here and another begins.

    Costs one test where nothing is traced.
    """
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(msg=f"{what} cannot be part of a graph: {why}")
