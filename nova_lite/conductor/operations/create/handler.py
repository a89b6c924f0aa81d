"""The end of a create: the server's access addresses.

Until here the create contends with a delete, which supersedes it. A build that fails on its host is built elsewhere; if
no host is left, the server is in ERROR with the reason, and its addresses and claims are released.
"""

from __future__ import annotations

from nova_lite import operations
from nova_lite.base import ip
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import instances
from nova_lite.operations import Step


class CreateHandler(OperationHandler):
    """Fills the access addresses from ``[DEFAULT] default_access_ip_network_name``, unless the user has given one."""

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        name = uow.conf.default_access_ip_network_name
        if not name or step.name != operations.BUILD or instance.access_ip_v4 or instance.access_ip_v6:
            return
        vifs = instances.to_object(uow, instance).vifs
        vif = next((vif for vif in vifs if vif.network.name == name), None)
        for address in () if vif is None else (vif.address, *(item.address for item in vif.more)):
            if ip.parse(address).version == 4:
                instance.access_ip_v4 = instance.access_ip_v4 or address
            else:
                instance.access_ip_v6 = instance.access_ip_v6 or address
