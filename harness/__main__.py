"""`python -m harness VERB`: see `harness.cli.commands`."""

import sys

from harness.cli.commands import main
from harness.interrupts import keep_interrupts

if __name__ == "__main__":
    keep_interrupts()
    sys.exit(main(sys.argv[1:]))
