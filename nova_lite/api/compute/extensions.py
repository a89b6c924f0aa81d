"""``/extensions``: the parts of this API, under the aliases and names that clients look up."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from nova_lite.api.http import router
from nova_lite.api.http.wsgi import NOT_SERVED, Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import extensions as policies


class Part(NamedTuple):
    """One of Nova's extensions. It is listed if ``route`` is served: "METHOD PATH", or the name of a server action."""

    name: str
    description: str
    route: str


_SERVERS = "GET /servers/detail"
_CREATE = "POST /servers"
_FLAVORS = "GET /flavors/detail"
_HYPERVISORS = "GET /os-hypervisors/detail"
_SERVICES = "GET /os-services"

#: By alias. What Nova itself has removed is not here.
PARTS: dict[str, Part] = {
    "NMN": Part("Multinic", "More than one fixed address for a server.", "addFixedIp"),
    "OS-DCF": Part("DiskConfig", "How a server's disk is partitioned.", _CREATE),
    "OS-EXT-AZ": Part("ExtendedAvailabilityZone", "The availability zone that a server is in.", _SERVERS),
    "OS-EXT-IMG-SIZE": Part("ImageSize", "The size of an image.", "GET /images/detail"),
    "OS-EXT-IPS": Part("ExtendedIps", "Whether an address is a fixed or a floating one.", _SERVERS),
    "OS-EXT-IPS-MAC": Part("ExtendedIpsMac", "The MAC address that an address belongs to.", _SERVERS),
    "OS-EXT-SRV-ATTR": Part("ExtendedServerAttributes", "A server's host and its name there.", _SERVERS),
    "OS-EXT-STS": Part("ExtendedStatus", "A server's vm state, task state and power state.", _SERVERS),
    "OS-FLV-DISABLED": Part("FlavorDisabled", "Whether a flavor is disabled.", _FLAVORS),
    "OS-FLV-EXT-DATA": Part("FlavorExtraData", "The ephemeral disk of a flavor.", _FLAVORS),
    "OS-SCH-HNT": Part("SchedulerHints", "Hints to the scheduler.", _CREATE),
    "OS-SRV-USG": Part("ServerUsage", "When a server was launched and terminated.", _SERVERS),
    "os-access-ips": Part("AccessIPs", "The addresses by which a server is reached.", _CREATE),
    "os-admin-actions": Part("AdminActions", "Resetting a server's state, by administrators.", "os-resetState"),
    "os-admin-password": Part("AdminPassword", "Changing a server's password.", "changePassword"),
    "os-aggregates": Part("Aggregates", "Groups of hosts.", "GET /os-aggregates"),
    "os-assisted-volume-snapshots": Part(
        "AssistedVolumeSnapshots", "Snapshots of volumes in use.", "POST /os-assisted-volume-snapshots"
    ),
    "os-attach-interfaces": Part("AttachInterfaces", "A server's interfaces.", "GET /servers/{}/os-interface"),
    "os-availability-zone": Part("AvailabilityZone", "Availability zones.", "GET /os-availability-zone"),
    "os-baremetal-ext-status": Part("BareMetalExtStatus", "The state of bare metal.", "GET /os-baremetal-nodes"),
    "os-baremetal-nodes": Part("BareMetalNodes", "Bare metal.", "GET /os-baremetal-nodes"),
    "os-block-device-mapping": Part("BlockDeviceMapping", "What a server boots from.", _CREATE),
    "os-block-device-mapping-v2-boot": Part("BlockDeviceMappingV2Boot", "The same, in its second form.", _CREATE),
    "os-config-drive": Part("ConfigDrive", "A drive with a server's metadata.", _CREATE),
    "os-console-auth-tokens": Part("ConsoleAuthTokens", "Tokens of consoles.", "GET /os-console-auth-tokens/{}"),
    "os-console-output": Part("ConsoleOutput", "What a guest has written to its console.", "os-getConsoleOutput"),
    "os-consoles": Part("Consoles", "Interactive consoles.", "POST /servers/{}/remote-consoles"),
    "os-create-backup": Part("CreateBackup", "Backups of servers, in rotation.", "createBackup"),
    "os-create-server-ext": Part("Createserverext", "Networks and security groups of a new server.", _CREATE),
    "os-deferred-delete": Part("DeferredDelete", "Deleting at once.", "forceDelete"),
    "os-evacuate": Part("Evacuate", "Building the servers of a dead host elsewhere.", "evacuate"),
    "os-extended-evacuate-find-host": Part("ExtendedEvacuateFindHost", "The scheduler finds the host.", "evacuate"),
    "os-extended-floating-ips": Part("ExtendedFloatingIps", "To which fixed address one leads.", "addFloatingIp"),
    "os-extended-hypervisors": Part("ExtendedHypervisors", "The address of a hypervisor.", _HYPERVISORS),
    "os-extended-networks": Part("ExtendedNetworks", "More about networks.", "GET /os-networks"),
    "os-extended-quotas": Part("ExtendedQuotas", "Back to the default quota.", "DELETE /os-quota-sets/{}"),
    "os-extended-rescue-with-image": Part("ExtendedRescueWithImage", "Which image to rescue with.", "rescue"),
    "os-extended-services": Part("ExtendedServices", "Why a service is disabled.", _SERVICES),
    "os-extended-services-delete": Part("ExtendedServicesDelete", "Removing a service.", "DELETE /os-services/{}"),
    "os-extended-status": Part("ExtendedStatus", "A server's vm state, task state and power state.", _SERVERS),
    "os-extended-volumes": Part("ExtendedVolumes", "The volumes of a server.", _SERVERS),
    "os-flavor-access": Part("FlavorAccess", "Who may use a flavor.", "GET /flavors/{}/os-flavor-access"),
    "os-flavor-extra-specs": Part("FlavorExtraSpecs", "What a flavor demands.", "GET /flavors/{}/os-extra_specs"),
    "os-flavor-manage": Part("FlavorManage", "Making and removing flavors.", "POST /flavors"),
    "os-flavor-rxtx": Part("FlavorRxtx", "The network factor of a flavor.", _FLAVORS),
    "os-flavor-swap": Part("FlavorSwap", "The swap space of a flavor.", _FLAVORS),
    "os-floating-ip-pools": Part("FloatingIpPools", "Pools of floating addresses.", "GET /os-floating-ip-pools"),
    "os-floating-ips": Part("FloatingIps", "Floating addresses.", "GET /os-floating-ips"),
    "os-hosts": Part("Hosts", "Hosts.", "GET /os-hosts"),
    "os-hypervisor-status": Part("HypervisorStatus", "Whether a hypervisor is up.", _HYPERVISORS),
    "os-hypervisors": Part("Hypervisors", "Hypervisors.", _HYPERVISORS),
    "os-instance-actions": Part("InstanceActions", "What was done to a server.", "GET /servers/{}/os-instance-actions"),
    "os-instance_usage_audit_log": Part(
        "OSInstanceUsageAuditLog", "Which usage audits have run.", "GET /os-instance_usage_audit_log"
    ),
    "os-keypairs": Part("Keypairs", "Key pairs.", "GET /os-keypairs"),
    "os-lock-server": Part("LockServer", "Locking a server.", "lock"),
    "os-migrate-server": Part("MigrateServer", "Moving a server to another host.", "migrate"),
    "os-migrations": Part("Migrations", "Moves of servers.", "GET /os-migrations"),
    "os-multiple-create": Part("MultipleCreate", "Several servers at once.", _CREATE),
    "os-networks": Part("Networks", "Networks.", "GET /os-networks"),
    "os-pause-server": Part("PauseServer", "Pausing a server.", "pause"),
    "os-personality": Part("Personality", "Files for a new server.", _CREATE),
    "os-preserve-ephemeral-rebuild": Part("PreserveEphemeralOnRebuild", "Keeping a disk in a rebuild.", "rebuild"),
    "os-quota-class-sets": Part("QuotaClasses", "Quota classes.", "GET /os-quota-class-sets/{}"),
    "os-quota-sets": Part("Quotas", "Quotas.", "GET /os-quota-sets/{}"),
    "os-rescue": Part("Rescue", "Rescuing a server.", "rescue"),
    "os-security-groups": Part("SecurityGroups", "Security groups.", "GET /os-security-groups"),
    "os-server-diagnostics": Part("ServerDiagnostics", "What a server uses.", "GET /servers/{}/diagnostics"),
    "os-server-external-events": Part(
        "ServerExternalEvents", "What other services report of a server.", "POST /os-server-external-events"
    ),
    "os-server-group-quotas": Part("ServerGroupQuotas", "Quotas of server groups.", "POST /os-server-groups"),
    "os-server-groups": Part("ServerGroups", "Server groups.", "GET /os-server-groups"),
    "os-server-list-multi-status": Part("ServerListMultiStatus", "Servers of several statuses.", _SERVERS),
    "os-server-password": Part("ServerPassword", "A guest's password.", "GET /servers/{}/os-server-password"),
    "os-server-sort-keys": Part("ServerSortKeys", "Servers in an order.", _SERVERS),
    "os-server-start-stop": Part("ServerStartStop", "Starting and stopping a server.", "os-start"),
    "os-services": Part("Services", "Services.", _SERVICES),
    "os-shelve": Part("Shelve", "Shelving a server.", "shelve"),
    "os-simple-tenant-usage": Part("SimpleTenantUsage", "What a project has used.", "GET /os-simple-tenant-usage"),
    "os-suspend-server": Part("SuspendServer", "Suspending a server.", "suspend"),
    "os-tenant-networks": Part("OSTenantNetworks", "A project's networks.", "GET /os-tenant-networks"),
    "os-used-limits": Part("UsedLimits", "What is used of the limits.", "GET /limits"),
    "os-used-limits-for-admin": Part("UsedLimitsForAdmin", "The same, of other projects.", "GET /limits"),
    "os-user-data": Part("UserData", "User data of a new server.", _CREATE),
    "os-user-quotas": Part("UserQuotas", "Quotas of single users.", "GET /os-quota-sets/{}"),
    "os-volume-attachment-update": Part(
        "VolumeAttachmentUpdate", "Another volume in the place of one.", "PUT /servers/{}/os-volume_attachments/{}"
    ),
    "os-volumes": Part("Volumes", "Volumes.", "GET /os-volumes"),
}


class Extensions(Extension):
    alias = "extensions"
    title = "Extensions"
    routes = (
        Route("GET", "/extensions", "index"),
        Route("GET", "/extensions/{id}", "show"),
    )

    @declares(policies.EXTENSIONS, answer="extensions")
    def index(self, req: Request) -> Response:
        return Response({"extensions": [_view(alias, part) for alias, part in served().items()]})

    @declares(policies.EXTENSIONS, answer="extension")
    def show(self, req: Request, id: str) -> Response:
        part = served().get(id)
        if part is None:
            raise exceptions.NotFound(f"There is no extension {id[:64]} here.")
        return Response({"extension": _view(id, part)})


@functools.cache
def served() -> dict[str, Part]:
    """Of `PARTS`, those of which there is something, by alias."""
    rows = [row for made in router.extension_classes() for row in made.routes if _is_served(made, row)]
    known = {row.action for row in rows} | {re.sub(r"{\w+}", "{}", f"{row.method} {row.path}") for row in rows}
    return {alias: part for alias, part in PARTS.items() if part.route in known}


def _is_served(made: type[Extension], row: Route) -> bool:
    return row.declaration(made).policy != NOT_SERVED


def _view(alias: str, part: Part) -> dict[str, Any]:
    return {
        "alias": alias,
        "name": part.name,
        "description": part.description,
        "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
        "updated": "2014-12-03T00:00:00Z",
        "links": [],
    }
