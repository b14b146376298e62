"""``python kit_on_host.py CHECK...``: these checks of the kit on the backend, on the host; prints JSON."""

import json
import sys


def main(patterns: list[str]) -> None:
    from fnmatch import fnmatchcase

    from statehal.testing import CHECKS, Target, run

    chosen = [one for name, one in CHECKS.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]
    print(json.dumps(run(Target("ascend_npu"), chosen, profile_name="dev").as_json()))


if __name__ == "__main__":
    main(sys.argv[1:])
