"""`python3 -m tests.lab`."""

import sys

from tests.lab.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
