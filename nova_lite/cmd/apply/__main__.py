"""``python -m nova_lite.cmd.apply`` is ``nova-lite apply``."""

from __future__ import annotations

import sys

from nova_lite.cmd.apply import parser, run

sys.exit(run(parser().parse_args()))
