"""``python -m tuplet``: the ``tuplet`` command."""

import sys

from tuplet.cli import main

sys.exit(main())
