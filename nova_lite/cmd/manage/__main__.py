"""``python -m nova_lite.cmd.manage``."""

from __future__ import annotations

import sys

from nova_lite.cmd.manage import main

sys.exit(main())
