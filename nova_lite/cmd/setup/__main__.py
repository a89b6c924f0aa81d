"""``python -m nova_lite.cmd.setup``."""

from __future__ import annotations

import sys

from nova_lite.cmd.setup import main

if __name__ == "__main__":
    sys.exit(main())
