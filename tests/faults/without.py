"""Run a daemon with one protection, or a part of its hypervisor, switched off: ``python -m tests.faults.without RULE
nova_lite.cmd.DAEMON …``.

This is how it is shown that the fault tests notice: `tests/faults/test_controls.py`, `test_matrix.py`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from nova_lite.base import failpoints
from tests.model import daemons


def reconciler() -> None:
    """Switch the reconciler off: an action is driven by its first message or not at all."""
    from nova_lite.conductor.reconciler import Reconciler

    Reconciler.sweep = lambda self: 0  # type: ignore[method-assign]


def confirmation() -> None:
    """Switch the confirmation off: a build moves away from a silent host at once."""
    from nova_lite.conductor.engine.context import lock_action
    from nova_lite.conductor.reconciler import Reconciler

    redrive = Reconciler._repeat_step

    def move(self: Reconciler, item: Any) -> None:
        if item.build is None:
            redrive(self, item)
            return

        def again(uow: Any) -> None:
            from nova_lite import operations
            from nova_lite.db.servers import claims

            act = lock_action(uow, item.action_id)
            if act is not None and act.action.step == operations.BUILD:
                claims.release(uow, item.instance_uuid)
                act.instance.host = act.instance.node = None
                act.action.payload = {**act.action.payload, "tried": [item.host]}
                self.engine.transitions.retry_from(act, operations.SCHEDULE, "it is silent", "")

        self.db.write(again)
        self.scheduling.run([(item.context, [item.instance_uuid])])

    Reconciler._repeat_step = move  # type: ignore[method-assign]


def revocation() -> None:
    """Switch the revoked generations off: a host builds whatever a command orders."""
    from nova_lite.compute.fencing import FencingTokenStore

    FencingTokenStore.revoke_failed_build = FencingTokenStore._revoke = lambda self, *args: None  # type: ignore[assignment,method-assign]


def fence_before_report() -> None:
    """Switch the fence before a report off: a host reports a failed build that it may repeat."""
    from nova_lite.compute.fencing import FencingTokenStore

    FencingTokenStore.revoke_failed_build = lambda self, result: None  # type: ignore[assignment,method-assign]


def conditional_claim() -> None:
    """Switch the conditional claim off: a claim is granted whatever is used already."""
    import sqlalchemy as sa

    from nova_lite.db.core.models import ComputeNode
    from nova_lite.db.servers import claims

    claim = claims.claim

    def widen(uow: Any, instance: Any, host: str, sign: int) -> None:
        amounts = {name: sign * getattr(instance, name) for name in ("vcpus", "memory_mb", "disk_gb")}
        more = {name: getattr(ComputeNode, name) + amount for name, amount in amounts.items()}
        uow.change(sa.update(ComputeNode).where(ComputeNode.host == host).values(**more))

    def grant(uow: Any, instance: Any, selection: Any, numa: Any = None, pci: Any = ()) -> bool:
        widen(uow, instance, selection.host, 1)
        granted = claim(uow, instance, selection, numa, pci)
        widen(uow, instance, selection.host, -1)
        return granted

    claims.claim = grant


def idle_power(method: str) -> Callable[[], None]:
    """Make the hypervisor report success without doing anything."""

    def switch_off() -> None:
        from nova_lite.virt.fake import FakePower

        setattr(FakePower, method, lambda self, *args: None)

    return switch_off


RULES = {
    "reconciler": reconciler,
    "confirmation": confirmation,
    "revocation": revocation,
    "fence before report": fence_before_report,
    "conditional claim": conditional_claim,
    "power_off": idle_power("off"),
    "reboot": idle_power("reboot"),
}


def main() -> int:
    rule, module = sys.argv[1:3]
    del sys.argv[1:3]
    daemon = importlib.import_module(module)
    RULES[rule]()
    daemons.record(os.environ[failpoints.DAEMON])
    status: int = daemon.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
