"""`python -m harness VERB`: the same as `kernel-matrix VERB`."""

import sys

from harness.cli.main import start

if __name__ == "__main__":
    sys.exit(start())
