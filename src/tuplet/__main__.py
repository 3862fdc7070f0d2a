"""``python -m tuplet``, for where the command is not on the path."""

import sys

from tuplet.cli import main

if __name__ == "__main__":
    sys.exit(main())
