"""``python hip_kit.py LAYOUT CHECK...``: these checks of the kit on the backend, interpreted; prints JSON.

``LAYOUT`` is ``page_major``, the backend's own choice, or a packed one, which then lays out every spec that fits it.
"""

import json
import os
import sys

from statehal.errors import LayoutError
from statehal.hookspecs import PoolLayoutRequest, hookimpl
from statehal.layout import PoolLayout


class WhereItFits:
    """A site's choice of layout."""

    def __init__(self, order: str) -> None:
        self._values = {"shuffled": "shuffled", "x_packed": "transposed"}[order]

    @hookimpl
    def statehal_pool_layout(self, request: PoolLayoutRequest) -> PoolLayout | None:
        from statehal.layout import x_packed

        try:
            return x_packed(request.spec, request.page_size, values=self._values, forms=("page", "block"))  # type: ignore[arg-type]
        except LayoutError:
            return None  # as the backend lays it out


def main(order: str, names: list[str]) -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton decides when it defines a kernel
    from plugin_fakes import point
    from statehal.registry import Registry
    from statehal.registry.scan import installed
    from statehal.testing import CHECKS, Target, run

    sites = [] if order == "page_major" else [point("site", WhereItFits(order))]
    target = Target("hip", "cpu", Registry.discover([*installed()[0], *sites], {}))
    report = run(target, [CHECKS[name] for name in names], profile_name="dev")
    print(json.dumps(report.as_json()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
