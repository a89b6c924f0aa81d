"""Run a daemon with one protection switched off: ``python -m tests.faults.without RULE nova_lite.cmd.DAEMON …``.

This is how it is shown that the fault tests notice: `tests/faults/test_controls.py`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def confirmation() -> None:
    """A build whose host is silent moves to another one, unasked."""
    from nova_lite.conductor.reconciler import Reconciler
    from nova_lite.conductor.tasks import reports
    from nova_lite.objects import BuildResult, Outcome

    redrive = Reconciler._redrive

    def move(self: Reconciler, item: Any) -> None:
        if item.build is None:
            redrive(self, item)
            return
        gone = BuildResult(
            instance_uuid=item.instance_uuid, generation=item.generation, host=item.host, outcome=Outcome.RESCHEDULED
        )
        if self.db.write(reports.finish_build, self.conf, self.network_backend, gone):
            self.builds.run(item.context, [item.instance_uuid])

    Reconciler._redrive = move  # type: ignore[method-assign]


RULES = {"confirmation": confirmation, "nothing": None}


def main() -> int:
    rule, module = sys.argv[1:3]
    del sys.argv[1:3]
    daemon = importlib.import_module(module)
    if switch_off := RULES[rule]:
        switch_off()
    status: int = daemon.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
