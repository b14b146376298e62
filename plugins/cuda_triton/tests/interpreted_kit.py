"""``python interpreted_kit.py CHECK...``: these checks of the kit on the backend, interpreted; prints JSON."""

import json
import os
import sys


def main(names: list[str]) -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton decides when it defines a kernel
    from statehal.testing import CHECKS, Target, run

    report = run(Target("cuda_triton"), [CHECKS[name] for name in names], profile_name="dev")
    print(json.dumps(report.as_json()))


if __name__ == "__main__":
    main(sys.argv[1:])
