"""What this host does for the steps of operations (`nova_lite.operations`), found by the RPC method of the order.

A step whose row names a method of the driver needs nothing here. The work is done by one thread at a time per instance,
and may be repeated after a kill. It says how it failed by raising.
"""

from __future__ import annotations

from collections.abc import Callable

from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import delete, power
from nova_lite.objects import ActionTicket

Work = Callable[[LocalHost, ActionTicket], None]

WORK: dict[str, Work] = {
    "terminate_instance": delete.terminate_instance,
    "stop_instance": power.stop_instance,
    "start_instance": power.start_instance,
    "reboot_instance": power.reboot_instance,
}
