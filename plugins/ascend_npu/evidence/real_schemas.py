"""``python real_schemas.py ROOT``: the KV calls through torch_npu's own schemas and Meta kernels, on a CPU.

The kit's checks of KV writes run on the backend with torch_npu loaded: its schemas take the plugin's real call lines,
its Meta kernels look at the tensors, and the contract model stores. What came of it goes into the matrix under ROOT.
"""

import os
import sys
from pathlib import Path

import torch

from npu_contract_model.beside_torch_npu import MET
from statehal.spec import Attention
from statehal.testing import CHECKS, Target, matrix, run
from statehal.testing.evidence import level
from statehal_ascend_npu.operators import conv1d, kv
from statehal_ascend_npu.operators.schema import find, overloads
from statehal_ascend_npu.pages import Pages
from statehal_ascend_npu.variables import KV

TOPICS = ("kv_", "latent_write", "rope_write")
"""What goes through torch_npu's operators; it has no causal conv1d of any width, so the others would prove nothing."""


def written(layout: str) -> bool:
    """Whether rows of a pool of pages of 128 are read back as they were written."""
    os.environ[KV.name] = layout
    target = Target("ascend_npu")
    pool = target.pool([Attention("rows", (0, 1), 2, 32, "bfloat16")], tokens=512, page_size=128)
    sub = pool["rows"]
    ids = sub.kernel_ids(pool.alloc(200).token_ids())
    rows = dict(zip("kv", torch.randn(2, 200, 2, 32).to(torch.bfloat16), strict=True))
    target.binding().kv(sub).write(1, ids, rows["k"], rows["v"])
    pages = {name: Pages(sub, name) for name in rows}
    assert all(one.fractal == (layout == "NZ") for one in pages.values())
    return all(
        torch.equal(one.load(1, one.find(ids.tensors)[1]).view(200, 2, 32), rows[name]) for name, one in pages.items()
    )


def main(root: Path) -> int:
    import torch_npu  # type: ignore[import-not-found, unused-ignore]

    print(f"torch_npu {torch_npu.__version__}, torch {torch.__version__}")
    known = True
    for text in kv.KNOWN.values():
        name = torch._C.parse_schema(text).name
        found = find({"": text})
        known &= found is not None
        meta = torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta")
        print(f"{name}: schema {'as called' if found else 'UNKNOWN'}, {'a' if meta else 'no'} Meta kernel")
    print(f"causal_conv1d of the model: {[str(one._schema.name) for one in overloads('npu::causal_conv1d')]}")
    print(f"the backend takes: {conv1d.described().split('(')[0]}; {kv.described()}")
    target = Target("ascend_npu")
    report = run(target, [check for check in CHECKS.values() if check.topic.startswith(TOPICS)])
    print(report.verdict)
    print(f"calls that passed a Meta kernel: {dict(MET)}")
    layouts = {layout: written(layout) for layout in ("ND", "NZ")}
    kv.TAKES = {**kv.TAKES, "scatter_pa_kv_cache": ()}  # as of a build that lacks it
    layouts["ND by atb::_npu_reshape_and_cache"] = written("ND")
    print(f"read back as written: {layouts}")
    matrix.main(root / "docs/conformance", root / "README.md", [report])
    return 0 if known and report.ok and MET and all(layouts.values()) and level(target) == "real schemas" else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
