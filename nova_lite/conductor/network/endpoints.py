"""RPC methods about the interfaces that a network service such as Neutron has: host, connection, groups.

Each method queries the service between two transactions. Only ports that the instance had before the query are
recorded. A port that came or went meanwhile belongs to another action.
"""

from __future__ import annotations

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.engine import network_calls
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import builtin_networks, port_devices, security_groups
from nova_lite.db.servers import instances
from nova_lite.network.driver import NetworkCall, NetworkMethod, ResolvedNetworks
from nova_lite.objects import VIF, BuildNetworks, SecurityGroup
from nova_lite.objects import Network as NetworkObject

PLUGGED, UNPLUGGED = "network-vif-plugged", "network-vif-unplugged"


class NetworkServiceEndpoints:
    def __init__(self, engine: ActionEngine) -> None:
        self.db = engine.db
        self.network = engine.network

    # --- for hosts

    def interfaces_bind(self, context: RequestContext, instance_uuid: str, host: str) -> BuildNetworks:
        call = self.db.read(self._plan_call_of_host, instance_uuid, host, NetworkMethod.BIND)
        return BuildNetworks(vifs=self._call_service(call) if self.network.has_remote_ports else call.vifs)

    def interfaces_active(self, context: RequestContext, instance_uuid: str, host: str, refresh: bool) -> bool:
        call = self.db.read(self._plan_call_of_host, instance_uuid, host, NetworkMethod.LOOK)
        vifs = self._call_service(call) if refresh and self.network.has_remote_ports else call.vifs
        return all(vif.active for vif in vifs)

    def _plan_call_of_host(self, uow: UnitOfWork, instance_uuid: str, host: str, method: NetworkMethod) -> NetworkCall:
        """Return a call about the instance. Raises `StaleReport` unless the instance is on the host, or moves to or
        from it.
        """
        if instance_uuid not in instances.concerned_with(uow, host):
            raise exceptions.StaleReport(instance_id=instance_uuid, generation=0, host=host)
        instance = instances.get_row(uow, get_admin_context(), instance_uuid)
        call = network_calls.plan(uow, self.network, instance, get_admin_context(), method)
        call.host, call.devices = host, port_devices.devices_at(uow, instance_uuid, host)
        return call

    # --- events

    def interfaces_event(self, context: RequestContext, instance_uuid: str, event: str, port_id: str | None) -> None:
        """Record the state of a port that was plugged or unplugged. After other events, query the network service."""
        if not self.network.has_remote_ports:
            return
        if event in (PLUGGED, UNPLUGGED) and port_id:
            self.db.write(self._plugged, instance_uuid, port_id, event == PLUGGED)
            return
        self._call_service(self.db.read(self._plan_call, get_admin_context(), instance_uuid, NetworkMethod.LOOK))

    def _plugged(self, uow: UnitOfWork, instance_uuid: str, port_id: str, active: bool) -> None:
        instances.lock(uow, instance_uuid)
        store = builtin_networks.Store(uow)
        vifs = store.recorded(instance_uuid)
        for vif in vifs:
            vif.active = active if vif.id == port_id else vif.active
        if vifs:
            store.record(instance_uuid, vifs)

    def _plan_call(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, method: NetworkMethod
    ) -> NetworkCall:
        instance = instances.get_row(uow, context, instance_uuid)
        return network_calls.plan(uow, self.network, instance, context, method)

    # --- calls

    def _call_service(self, call: NetworkCall) -> list[VIF]:
        """Call the network service, and record the ports that it returns."""
        vifs: list[VIF] = self.network.call(call)
        return self.db.write(self._record, call, vifs)

    def _record(self, uow: UnitOfWork, call: NetworkCall, vifs: list[VIF]) -> list[VIF]:
        if instances.lock(uow, call.instance_uuid) is None:
            return vifs
        store = builtin_networks.Store(uow)
        updated = {vif.id: vif for vif in vifs}
        deleted = {vif.id for vif in call.vifs} - updated.keys()
        remaining = [vif for vif in store.recorded(call.instance_uuid) if vif.id not in deleted]
        for vif in remaining:
            if vif.id in updated:
                updated[vif.id].state, updated[vif.id].position = vif.state, vif.position
        store.record(call.instance_uuid, [updated.get(vif.id, vif) for vif in remaining])
        return vifs


class PortEndpoints(NetworkServiceEndpoints):
    """RPC methods where the network service has all ports: also networks, and the security groups of servers."""

    # --- security groups of a server

    def instance_security_groups(self, context: RequestContext, instance_uuid: str) -> list[SecurityGroup]:
        call = self.db.read(self._plan_call, context, instance_uuid, NetworkMethod.LOOK)
        groups = _groups_of(self._call_service(call))
        return [SecurityGroup(id=group_id, name=name, project_id=call.project_id) for group_id, name in groups.items()]

    def instance_security_group_add(self, context: RequestContext, instance_uuid: str, name: str) -> None:
        call = self._to_regroup(context, instance_uuid, name)
        call.method = NetworkMethod.JOIN
        self._call_service(call)

    def instance_security_group_remove(self, context: RequestContext, instance_uuid: str, name: str) -> None:
        call = self._to_regroup(context, instance_uuid, name)
        (group,) = call.security_groups
        if group not in _groups_of(
            self._call_service(msgspec.structs.replace(call, method=NetworkMethod.LOOK, security_groups=[]))
        ):
            raise exceptions.SecurityGroupNotAssociated(name=name, instance_id=instance_uuid)
        call.method = NetworkMethod.LEAVE
        self._call_service(call)

    def _to_regroup(self, context: RequestContext, instance_uuid: str, name: str) -> NetworkCall:
        """Return a call with all ports of the instance and this group of its project.

        ``name``: name or id of the group. Raises a 404 or a 409.
        """
        call = self.db.read(self._changeable, context, instance_uuid)
        owner = get_admin_context()
        owner.project_id = call.project_id
        try:
            resolved: ResolvedNetworks = self.network.call(
                NetworkCall(method=NetworkMethod.RESOLVE, context=owner, networks=[], security_groups=[name])
            )
        except exceptions.SecurityGroupUnavailable as error:
            raise exceptions.SecurityGroupNotFound(group_id=name) from error
        call.security_groups = resolved.security_groups
        return call

    def _changeable(self, uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> NetworkCall:
        instance = instances.get_row(uow, context, instance_uuid)
        security_groups.check_changeable(context, instance)
        return network_calls.plan(uow, self.network, instance, context, NetworkMethod.LOOK)

    # --- networks

    def network_list(self, context: RequestContext, network_id: str | None = None) -> list[NetworkObject]:
        networks_of_service: list[NetworkObject] = self.network.call(
            NetworkCall(method=NetworkMethod.NETWORKS, context=context)
        )
        return [network for network in networks_of_service if network_id in (None, network.id)]


def _groups_of(vifs: list[VIF]) -> dict[str, str]:
    """Return the names of the groups, by id."""
    return {
        group_id: name
        for vif in vifs
        for group_id, name in zip(vif.security_group_ids, vif.security_groups or (), strict=True)
    }
