"""Run a daemon of a history: ``python -m tests.faults.history.daemon RULE nova_lite.cmd.DAEMON …``.

Its clock can jump, and its transactions have names. ``RULE``: a protection of `tests.faults.without` that is switched
off, or ``-`` for none.
"""

from __future__ import annotations

import sys

from tests.faults import daemon, without
from tests.faults.history import rowlog

NONE = "-"


def main() -> int:
    rule = sys.argv.pop(1)
    if sys.argv[1].endswith(".conductor"):
        rowlog.mark_transactions()
    if rule != NONE:
        without.RULES[rule]()
    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
