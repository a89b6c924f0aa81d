"""``python -m nova_lite.cmd.dev`` is ``nova-lite``."""

from __future__ import annotations

import sys

from nova_lite.cmd.dev import main

sys.exit(main())
