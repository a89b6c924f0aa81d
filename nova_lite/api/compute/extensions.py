"""``/extensions``: the extensions of this API, by the aliases and names that clients look up."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from nova_lite.api.http import router
from nova_lite.api.http.wsgi import NOT_SERVED, Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import extensions as policies


class NovaExtension(NamedTuple):
    """An extension of Nova. It is listed if ``route`` is served: "METHOD PATH", or the name of a server action."""

    name: str
    description: str
    route: str


_SERVERS = "GET /servers/detail"
_CREATE = "POST /servers"
_FLAVORS = "GET /flavors/detail"
_HYPERVISORS = "GET /os-hypervisors/detail"
_SERVICES = "GET /os-services"

#: Nova's extensions by alias, except the ones removed from Nova.
NOVA_EXTENSIONS: dict[str, NovaExtension] = {
    "NMN": NovaExtension("Multinic", "More than one fixed address for a server.", "addFixedIp"),
    "OS-DCF": NovaExtension("DiskConfig", "How a server's disk is partitioned.", _CREATE),
    "OS-EXT-AZ": NovaExtension("ExtendedAvailabilityZone", "The availability zone that a server is in.", _SERVERS),
    "OS-EXT-IMG-SIZE": NovaExtension("ImageSize", "The size of an image.", "GET /images/detail"),
    "OS-EXT-IPS": NovaExtension("ExtendedIps", "Whether an address is a fixed or a floating one.", _SERVERS),
    "OS-EXT-IPS-MAC": NovaExtension("ExtendedIpsMac", "The MAC address that an address belongs to.", _SERVERS),
    "OS-EXT-SRV-ATTR": NovaExtension("ExtendedServerAttributes", "A server's host and its name there.", _SERVERS),
    "OS-EXT-STS": NovaExtension("ExtendedStatus", "A server's vm state, task state and power state.", _SERVERS),
    "OS-FLV-DISABLED": NovaExtension("FlavorDisabled", "Whether a flavor is disabled.", _FLAVORS),
    "OS-FLV-EXT-DATA": NovaExtension("FlavorExtraData", "The ephemeral disk of a flavor.", _FLAVORS),
    "OS-SCH-HNT": NovaExtension("SchedulerHints", "Hints to the scheduler.", _CREATE),
    "OS-SRV-USG": NovaExtension("ServerUsage", "When a server was launched and terminated.", _SERVERS),
    "os-access-ips": NovaExtension("AccessIPs", "The addresses by which a server is reached.", _CREATE),
    "os-admin-actions": NovaExtension(
        "AdminActions", "Resetting a server's state, by administrators.", "os-resetState"
    ),
    "os-admin-password": NovaExtension("AdminPassword", "Changing a server's password.", "changePassword"),
    "os-aggregates": NovaExtension("Aggregates", "Groups of hosts.", "GET /os-aggregates"),
    "os-assisted-volume-snapshots": NovaExtension(
        "AssistedVolumeSnapshots", "Snapshots of volumes in use.", "POST /os-assisted-volume-snapshots"
    ),
    "os-attach-interfaces": NovaExtension("AttachInterfaces", "A server's interfaces.", "GET /servers/{}/os-interface"),
    "os-availability-zone": NovaExtension("AvailabilityZone", "Availability zones.", "GET /os-availability-zone"),
    "os-baremetal-ext-status": NovaExtension(
        "BareMetalExtStatus", "The state of bare metal.", "GET /os-baremetal-nodes"
    ),
    "os-baremetal-nodes": NovaExtension("BareMetalNodes", "Bare metal.", "GET /os-baremetal-nodes"),
    "os-block-device-mapping": NovaExtension("BlockDeviceMapping", "What a server boots from.", _CREATE),
    "os-block-device-mapping-v2-boot": NovaExtension(
        "BlockDeviceMappingV2Boot", "The same, in its second form.", _CREATE
    ),
    "os-config-drive": NovaExtension("ConfigDrive", "A drive with a server's metadata.", _CREATE),
    "os-console-auth-tokens": NovaExtension(
        "ConsoleAuthTokens", "Tokens of consoles.", "GET /os-console-auth-tokens/{}"
    ),
    "os-console-output": NovaExtension(
        "ConsoleOutput", "What a guest has written to its console.", "os-getConsoleOutput"
    ),
    "os-consoles": NovaExtension("Consoles", "Interactive consoles.", "POST /servers/{}/remote-consoles"),
    "os-create-backup": NovaExtension("CreateBackup", "Backups of servers, in rotation.", "createBackup"),
    "os-create-server-ext": NovaExtension("Createserverext", "Networks and security groups of a new server.", _CREATE),
    "os-deferred-delete": NovaExtension("DeferredDelete", "Deleting at once.", "forceDelete"),
    "os-evacuate": NovaExtension("Evacuate", "Building the servers of a dead host elsewhere.", "evacuate"),
    "os-extended-evacuate-find-host": NovaExtension(
        "ExtendedEvacuateFindHost", "The scheduler finds the host.", "evacuate"
    ),
    "os-extended-floating-ips": NovaExtension(
        "ExtendedFloatingIps", "To which fixed address one leads.", "addFloatingIp"
    ),
    "os-extended-hypervisors": NovaExtension("ExtendedHypervisors", "The address of a hypervisor.", _HYPERVISORS),
    "os-extended-networks": NovaExtension("ExtendedNetworks", "More about networks.", "GET /os-networks"),
    "os-extended-quotas": NovaExtension("ExtendedQuotas", "Back to the default quota.", "DELETE /os-quota-sets/{}"),
    "os-extended-rescue-with-image": NovaExtension("ExtendedRescueWithImage", "Which image to rescue with.", "rescue"),
    "os-extended-services": NovaExtension("ExtendedServices", "Why a service is disabled.", _SERVICES),
    "os-extended-services-delete": NovaExtension(
        "ExtendedServicesDelete", "Removing a service.", "DELETE /os-services/{}"
    ),
    "os-extended-status": NovaExtension("ExtendedStatus", "A server's vm state, task state and power state.", _SERVERS),
    "os-extended-volumes": NovaExtension("ExtendedVolumes", "The volumes of a server.", _SERVERS),
    "os-flavor-access": NovaExtension("FlavorAccess", "Who may use a flavor.", "GET /flavors/{}/os-flavor-access"),
    "os-flavor-extra-specs": NovaExtension(
        "FlavorExtraSpecs", "What a flavor demands.", "GET /flavors/{}/os-extra_specs"
    ),
    "os-flavor-manage": NovaExtension("FlavorManage", "Making and removing flavors.", "POST /flavors"),
    "os-flavor-rxtx": NovaExtension("FlavorRxtx", "The network factor of a flavor.", _FLAVORS),
    "os-flavor-swap": NovaExtension("FlavorSwap", "The swap space of a flavor.", _FLAVORS),
    "os-floating-ip-pools": NovaExtension(
        "FloatingIpPools", "Pools of floating addresses.", "GET /os-floating-ip-pools"
    ),
    "os-floating-ips": NovaExtension("FloatingIps", "Floating addresses.", "GET /os-floating-ips"),
    "os-hosts": NovaExtension("Hosts", "Hosts.", "GET /os-hosts"),
    "os-hypervisor-status": NovaExtension("HypervisorStatus", "Whether a hypervisor is up.", _HYPERVISORS),
    "os-hypervisors": NovaExtension("Hypervisors", "Hypervisors.", _HYPERVISORS),
    "os-instance-actions": NovaExtension(
        "InstanceActions", "What was done to a server.", "GET /servers/{}/os-instance-actions"
    ),
    "os-instance_usage_audit_log": NovaExtension(
        "OSInstanceUsageAuditLog", "Which usage audits have run.", "GET /os-instance_usage_audit_log"
    ),
    "os-keypairs": NovaExtension("Keypairs", "Key pairs.", "GET /os-keypairs"),
    "os-lock-server": NovaExtension("LockServer", "Locking a server.", "lock"),
    "os-migrate-server": NovaExtension("MigrateServer", "Moving a server to another host.", "migrate"),
    "os-migrations": NovaExtension("Migrations", "Moves of servers.", "GET /os-migrations"),
    "os-multiple-create": NovaExtension("MultipleCreate", "Several servers at once.", _CREATE),
    "os-networks": NovaExtension("Networks", "Networks.", "GET /os-networks"),
    "os-pause-server": NovaExtension("PauseServer", "Pausing a server.", "pause"),
    "os-personality": NovaExtension("Personality", "Files for a new server.", _CREATE),
    "os-preserve-ephemeral-rebuild": NovaExtension(
        "PreserveEphemeralOnRebuild", "Keeping a disk in a rebuild.", "rebuild"
    ),
    "os-quota-class-sets": NovaExtension("QuotaClasses", "Quota classes.", "GET /os-quota-class-sets/{}"),
    "os-quota-sets": NovaExtension("Quotas", "Quotas.", "GET /os-quota-sets/{}"),
    "os-rescue": NovaExtension("Rescue", "Rescuing a server.", "rescue"),
    "os-security-groups": NovaExtension("SecurityGroups", "Security groups.", "GET /os-security-groups"),
    "os-server-diagnostics": NovaExtension("ServerDiagnostics", "What a server uses.", "GET /servers/{}/diagnostics"),
    "os-server-external-events": NovaExtension(
        "ServerExternalEvents", "What other services report of a server.", "POST /os-server-external-events"
    ),
    "os-server-group-quotas": NovaExtension("ServerGroupQuotas", "Quotas of server groups.", "POST /os-server-groups"),
    "os-server-groups": NovaExtension("ServerGroups", "Server groups.", "GET /os-server-groups"),
    "os-server-list-multi-status": NovaExtension("ServerListMultiStatus", "Servers of several statuses.", _SERVERS),
    "os-server-password": NovaExtension("ServerPassword", "A guest's password.", "GET /servers/{}/os-server-password"),
    "os-server-sort-keys": NovaExtension("ServerSortKeys", "Servers in an order.", _SERVERS),
    "os-server-start-stop": NovaExtension("ServerStartStop", "Starting and stopping a server.", "os-start"),
    "os-services": NovaExtension("Services", "Services.", _SERVICES),
    "os-shelve": NovaExtension("Shelve", "Shelving a server.", "shelve"),
    "os-simple-tenant-usage": NovaExtension(
        "SimpleTenantUsage", "What a project has used.", "GET /os-simple-tenant-usage"
    ),
    "os-suspend-server": NovaExtension("SuspendServer", "Suspending a server.", "suspend"),
    "os-tenant-networks": NovaExtension("OSTenantNetworks", "A project's networks.", "GET /os-tenant-networks"),
    "os-used-limits": NovaExtension("UsedLimits", "What is used of the limits.", "GET /limits"),
    "os-used-limits-for-admin": NovaExtension("UsedLimitsForAdmin", "The same, of other projects.", "GET /limits"),
    "os-user-data": NovaExtension("UserData", "User data of a new server.", _CREATE),
    "os-user-quotas": NovaExtension("UserQuotas", "Quotas of single users.", "GET /os-quota-sets/{}"),
    "os-volume-attachment-update": NovaExtension(
        "VolumeAttachmentUpdate", "Another volume in the place of one.", "PUT /servers/{}/os-volume_attachments/{}"
    ),
    "os-volumes": NovaExtension("Volumes", "Volumes.", "GET /os-volumes"),
}


class Extensions(Extension):
    alias = "extensions"
    title = "Extensions"
    routes = (
        Route("GET", "/extensions", "index"),
        Route("GET", "/extensions/{id}", "show"),
    )

    @declares(policies.EXTENSIONS, response="extensions")
    def index(self, req: Request) -> Response:
        return Response({"extensions": [_view(alias, extension) for alias, extension in served().items()]})

    @declares(policies.EXTENSIONS, response="extension")
    def show(self, req: Request, id: str) -> Response:
        extension = served().get(id)
        if extension is None:
            raise exceptions.NotFound(f"There is no extension {id[:64]} here.")
        return Response({"extension": _view(id, extension)})


@functools.cache
def served() -> dict[str, NovaExtension]:
    """Return the entries of `NOVA_EXTENSIONS` whose route is served, by alias."""
    routes = [
        route for extension in router.extension_classes() for route in extension.routes if _is_served(extension, route)
    ]
    known = {route.action for route in routes}
    known |= {re.sub(r"{\w+}", "{}", f"{route.method} {route.path}") for route in routes}
    return {alias: extension for alias, extension in NOVA_EXTENSIONS.items() if extension.route in known}


def _is_served(extension: type[Extension], route: Route) -> bool:
    return route.declaration(extension).policy != NOT_SERVED


def _view(alias: str, extension: NovaExtension) -> dict[str, Any]:
    return {
        "alias": alias,
        "name": extension.name,
        "description": extension.description,
        "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
        "updated": "2014-12-03T00:00:00Z",
        "links": [],
    }
