"""``python -m statehal``."""

import sys

from statehal.cli import main

if __name__ == "__main__":
    sys.exit(main())
