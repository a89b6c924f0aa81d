"""RPC methods that are one function of `nova_lite.db` in one transaction.

Such a function takes the unit of work, ``conf`` and ``context`` if it names them, and the message's arguments by their
names. `rpc.Endpoint` holds them against the Protocol.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.notifications.resources import noted
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.core import quotas, replay_cache
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import aggregates, balance, compute_nodes, host_aggregates, hosts, joins, placement, services
from nova_lite.db.image import host_images, image_members, images, metadefs
from nova_lite.db.network import (
    api_resources,
    builtin_networks,
    external_networks,
    floating_ips,
    network_quotas,
    network_tags,
    networks,
    packet_trace,
    ports,
    routers,
    security_groups,
)
from nova_lite.db.network import bulk as network_bulk
from nova_lite.db.servers import (
    action_log,
    console_tokens,
    fencing,
    flavor_access,
    flavors,
    instance_metadata,
    instance_tags,
    instances,
    keypairs,
    server_groups,
    server_migrations,
    usage,
)
from nova_lite.db.upkeep import audit_events
from nova_lite.db.volume import volume_backups, volume_qos, volume_transfers, volume_types, volumes
from nova_lite.network import security_rules
from nova_lite.objects import NetworkResources, SecurityGroupRule

Function = Callable[..., Any]

#: Functions that only read, on one consistent snapshot.
READS: dict[str, Function] = {
    "action_get": action_log.get,
    "action_list": action_log.list_,
    "aggregate_get": aggregates.get,
    "aggregate_list": aggregates.list_,
    "audit_list": audit_events.list_,
    "availability_zone_list": services.availability_zones,
    "backup_policy_get": backup_policies.get,
    "backup_policy_list": backup_policies.list_,
    "backup_policy_status_get": backup_policies.status,
    "compute_node_get": compute_nodes.get,
    "compute_node_list": compute_nodes.list_,
    "console_token_get": console_tokens.get,
    "cpu_baseline_get": host_aggregates.cpu_baseline,
    "fencing_records_settled": fencing.settled,
    "flavor_access_list": flavor_access.list_,
    "flavor_get": flavors.get,
    "flavor_list": flavors.list_,
    "floating_ip_get": floating_ips.get,
    "floating_ip_list": floating_ips.list_,
    "floating_ip_pool_list": floating_ips.pools,
    "host_states_get": hosts.page_of_states,
    "host_versions_get": hosts.page_of_versions,
    "image_list": images.list_,
    "image_member_list": image_members.list_,
    "metadef_get": metadefs.get,
    "metadef_list": metadefs.list_,
    "instance_get": instances.get,
    "instance_list": instances.list_,
    "instances_get": instances.get_all,
    "hosted_instance_list": instances.on_hosts,
    "instances_at_address": instances.at_address,
    "instance_security_groups": security_groups.of_instance,
    "join_list": joins.pending,
    "keypair_get": keypairs.get,
    "keypair_list": keypairs.list_,
    "limits_get": quotas.get,
    "metadata_instances": instances.at_host,
    "migration_get": server_migrations.get,
    "migration_list": server_migrations.list_,
    "migrations_in_progress": server_migrations.in_progress,
    "network_address_counts_get": networks.address_counts,
    "network_limits_get": network_quotas.get,
    "network_limits_list": network_quotas.list_,
    "network_object_list": api_resources.list_,
    "network_record_list": networks.list_,
    "network_list": builtin_networks.list_,
    "packet_way_get": packet_trace.of_port,
    "port_get": ports.get,
    "port_list": ports.list_,
    "quota_defaults_get": quotas.defaults,
    "resource_allocation_list": placement.allocations,
    "resource_provider_list": placement.providers,
    "router_get": routers.get,
    "router_list": routers.list_,
    "security_group_get": security_groups.get,
    "security_group_list": security_groups.list_,
    "security_group_rule_list": security_groups.rules,
    "server_backup_get": server_backups.get,
    "server_backup_list": server_backups.list_,
    "server_group_get": server_groups.get,
    "server_group_list": server_groups.list_,
    "service_list": services.list_,
    "snapshot_get": volumes.get_snapshot,
    "snapshot_list": volumes.list_snapshots,
    "trust_get": joins.published,
    "host_image_get": host_images.get,
    "usage_list": usage.list_,
    "volume_get": volumes.get,
    "backup_get": volume_backups.get,
    "backup_list": volume_backups.list_,
    "volume_default_type_list": volume_types.default_types,
    "volume_list": volumes.list_,
    "volume_qos_get": volume_qos.get,
    "volume_qos_list": volume_qos.list_,
    "volume_transfer_get": volume_transfers.get,
    "volume_transfer_list": volume_transfers.list_,
    "volume_type_get": volume_types.get,
    "volume_type_list": volume_types.list_,
    "volume_usage": volumes.usage,
}

WRITES: dict[str, Function] = {
    "aggregate_add_host": aggregates.add_host,
    "aggregate_create": aggregates.create,
    "aggregate_delete": aggregates.delete,
    "aggregate_remove_host": aggregates.remove_host,
    "aggregate_set_metadata": aggregates.set_metadata,
    "aggregate_update": aggregates.rename,
    "audit_record": audit_events.record_events,
    "backup_policy_create": backup_policies.create,
    "backup_policy_delete": backup_policies.delete,
    "backup_policy_run": backup_policies.run,
    "backup_policy_update": backup_policies.update,
    "console_token_create": console_tokens.create,
    "console_token_redeem": console_tokens.take,
    "external_network_create": external_networks.create,
    "external_network_delete": external_networks.delete,
    "external_network_update": external_networks.update,
    "external_subnet_create": external_networks.create_subnet,
    "external_subnet_delete": external_networks.delete_subnet,
    "flavor_access_add": flavor_access.add,
    "flavor_access_remove": flavor_access.remove,
    "flavor_create": flavors.create,
    "flavor_delete": flavors.delete,
    "flavor_extra_spec_delete": flavors.delete_extra_spec,
    "flavor_extra_specs_update": flavors.update_extra_specs,
    "flavor_update": flavors.update,
    "floating_ip_associate": floating_ips.associate,
    "floating_ip_create": floating_ips.allocate,
    "floating_ip_delete": floating_ips.release,
    "floating_ip_disassociate": floating_ips.disassociate,
    "floating_ip_update": floating_ips.update,
    "image_create": images.create,
    "image_member_add": image_members.add,
    "image_member_delete": image_members.delete,
    "image_member_update": image_members.update,
    "metadef_create": metadefs.create,
    "metadef_delete": metadefs.delete,
    "metadef_parts_change": metadefs.change_parts,
    "metadef_update": metadefs.update,
    "host_join": joins.join,
    "instance_metadata_change": instance_metadata.change,
    "instance_metadata_delete": instance_metadata.delete,
    "instance_password_clear": instance_metadata.clear_password,
    "instance_password_set": instance_metadata.set_password,
    "instance_security_group_add": security_groups.join,
    "instance_security_group_remove": security_groups.leave,
    "instance_tag_add": instance_tags.add,
    "instance_tag_delete": instance_tags.delete,
    "instance_tags_replace": instance_tags.replace,
    "instance_update": instances.update,
    "join_finish": joins.finish,
    "keypair_create": keypairs.create,
    "keypair_delete": keypairs.delete,
    "metadata_password_set": instance_metadata.set_password_at,
    "network_create": networks.create,
    "network_resources_create": network_bulk.create,
    "network_delete": networks.delete,
    "network_tags_change": network_tags.change,
    "network_limits_update": network_quotas.set_limits,
    "network_object_create": api_resources.create_object,
    "network_object_delete": api_resources.delete_object,
    "network_object_update": api_resources.update_object,
    "network_update": networks.update,
    "port_create": ports.create,
    "port_delete": ports.delete,
    "port_update": ports.update,
    "quota_defaults_update": quotas.set_defaults,
    "quota_delete": quotas.reset,
    "quota_update": quotas.set_limits,
    "register_host": hosts.register_host,
    "report_load": balance.report_load,
    "renew_lease": hosts.renew_lease,
    "report_service": services.report,
    "report_storage": hosts.report_storage,
    "router_create": routers.create,
    "router_delete": routers.delete,
    "router_interface_add": routers.add_interface,
    "router_interface_remove": routers.remove_interface,
    "router_update": routers.update,
    "security_group_create": security_groups.create,
    "security_group_delete": security_groups.delete,
    "security_group_rule_create": security_groups.add_rule,
    "security_group_rule_delete": security_groups.delete_rule,
    "security_group_update": security_groups.update,
    "server_backup_delete": server_backups.delete,
    "server_backup_hold": server_backups.hold,
    "server_backup_lock": server_backups.lock_until,
    "server_backup_want_image": server_backups.want_image,
    "server_group_create": server_groups.create,
    "server_group_delete": server_groups.delete,
    "service_delete": services.delete,
    "service_update": services.update,
    "subnet_create": networks.create_subnet,
    "subnet_delete": networks.delete_subnet,
    "trust_publish": joins.publish,
    "volume_attachment_set": volumes.set_attachment,
    "volume_default_type_set": volume_types.set_default,
    "volume_qos_associate": volume_qos.associate,
    "volume_qos_create": volume_qos.create,
    "volume_qos_delete": volume_qos.delete,
    "volume_qos_disassociate": volume_qos.disassociate,
    "volume_qos_disassociate_all": volume_qos.disassociate_all,
    "volume_qos_update": volume_qos.update,
    "volume_quota_delete": volumes.reset_quota,
    "volume_reserve": volumes.set_reserved,
    "volume_quota_update": volumes.set_quota,
    "volume_transfer_accept": volume_transfers.accept,
    "volume_transfer_create": volume_transfers.create,
    "volume_transfer_delete": volume_transfers.delete,
    "volume_type_create": volume_types.create,
    "volume_type_delete": volume_types.delete,
    "volume_type_encryption_set": volume_types.set_encryption,
    "volume_type_project_add": volume_types.add_project,
    "volume_type_project_remove": volume_types.remove_project,
    "volume_type_update": volume_types.update,
}


def _checked_rule(rule: SecurityGroupRule) -> dict[str, Any]:
    return {"rule": security_rules.checked(rule)}


def _checked_resources(wanted: NetworkResources) -> dict[str, Any]:
    rules = [security_rules.checked(rule) for rule in wanted.security_group_rules]
    return {"wanted": msgspec.structs.replace(wanted, security_group_rules=rules)}


#: Checks of arguments that need no database. They run before the transaction, and return the arguments to use.
CHECKS: dict[str, Function] = {
    "network_resources_create": _checked_resources,
    "security_group_rule_create": _checked_rule,
}


#: Prefixes of methods about resources of the network service, if that service has the ports.
_OF_PORTS = ("security_group_", "floating_ip_")

#: Methods that then call the service (`nova_lite.conductor.network.endpoints.PortEndpoints`).
_BY_NETWORK_SERVICE = (
    "network_list",
    "instance_security_groups",
    "instance_security_group_add",
    "instance_security_group_remove",
)


def functions(db: Database, conf: cfg.ConfigOpts, without_ports: bool = False) -> dict[str, Function]:
    """Return the functions for `rpc.Endpoint`. ``without_ports``: the network service has the ports."""

    reads = {name: _served(name, db.read, function, conf) for name, function in READS.items()}
    writes = {name: _served(name, db.write, function, conf) for name, function in WRITES.items()}
    every = reads | {name: rpc.records_message(function) for name, function in writes.items()}
    if not without_ports:
        return every
    left = {name: function for name, function in every.items() if name not in _BY_NETWORK_SERVICE}
    return {name: _elsewhere(function) if name.startswith(_OF_PORTS) else function for name, function in left.items()}


def _elsewhere(function: Function) -> Function:
    @functools.wraps(function)
    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise exceptions.NotServed(
            what="Managing security groups and floating addresses by the compute API",
            instead=" They are the network service's: use its API.",
        )

    return refuse


def _recorded(function: Function, context: RequestContext) -> Function:
    """Return the function, which first records the message of a change."""
    if context.message is None:
        return function

    @functools.wraps(function)
    def run(uow: UnitOfWork, **arguments: Any) -> Any:
        replay_cache.record(uow, context, is_recognised=False)
        return function(uow, **arguments)

    return run


def _served(name: str, run: Function, function: Function, conf: cfg.ConfigOpts) -> Function:
    own, signature, types = _shape(function)
    fixed = {"conf": conf} if "conf" in own else {}
    checked = CHECKS.get(name, dict)

    def served(context: RequestContext, **arguments: Any) -> Any:
        arguments = checked(**arguments)
        if "context" in own:
            arguments["context"] = context
        return run(_recorded(noted(name, function, context), context), **fixed, **arguments)

    served.__signature__ = signature  # type: ignore[attr-defined]
    served.__annotations__ = types
    return served


@functools.cache
def _shape(function: Function) -> tuple[set[str], inspect.Signature, dict[str, Any]]:
    """Return which of ``conf`` and ``context`` the function takes, then the signature and the types to serve."""
    parameters, hints = inspect.signature(function).parameters, typing.get_type_hints(function)
    own = {"uow", "conf", "context"} & parameters.keys()
    sent = [parameter for name, parameter in parameters.items() if name not in own]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY)
    return own, inspect.Signature([context, *sent]), {name: hints[name] for name in hints if name not in own}
