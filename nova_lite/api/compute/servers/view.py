"""The JSON of a server, in the form of the request's microversion."""

from __future__ import annotations

import functools
import hashlib
from typing import Any, NamedTuple

from nova_lite.api import shared_objects
from nova_lite.api.compute import flavors, view_helpers
from nova_lite.api.compute.servers import image_properties
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import VIF, Instance
from nova_lite.objects.instance import version_of
from nova_lite.operations import states
from nova_lite.policies import servers as policies

_RESIZING = dict.fromkeys(("resize_prep", "resize_migrating", "resize_migrated", "resize_finish"), "RESIZE")
_REBUILDING = dict.fromkeys(("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"), "REBUILD")
_REBOOTING = dict.fromkeys(("rebooting", "reboot_pending", "reboot_started"), "REBOOT")
_HARD_REBOOTING = dict.fromkeys(("rebooting_hard", "reboot_pending_hard", "reboot_started_hard"), "HARD_REBOOT")

#: The status of each vm_state without a task, and its statuses with certain tasks.
STATUSES: dict[str, tuple[str, dict[str, str]]] = {
    states.ACTIVE: (
        "ACTIVE",
        {
            **_REBOOTING,
            **_HARD_REBOOTING,
            **_REBUILDING,
            **_RESIZING,
            "updating_password": "PASSWORD",
            "migrating": "MIGRATING",
        },
    ),
    states.BUILDING: ("BUILD", {}),
    states.STOPPED: ("SHUTOFF", {**_RESIZING, **_REBUILDING}),
    states.RESIZED: ("VERIFY_RESIZE", {"resize_reverting": "REVERT_RESIZE"}),
    states.PAUSED: ("PAUSED", {"migrating": "MIGRATING"}),
    states.SUSPENDED: ("SUSPENDED", {}),
    states.RESCUED: ("RESCUE", {}),
    states.ERROR: ("ERROR", _REBUILDING),
    states.DELETED: ("DELETED", {}),
    states.SOFT_DELETED: ("SOFT_DELETED", {}),
    states.SHELVED: ("SHELVED", {}),
    states.SHELVED_OFFLOADED: ("SHELVED_OFFLOADED", {}),
}

_WITH_PROGRESS = ("ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING")
_WITH_FAULT = ("ERROR", "DELETED")


def status_of(instance: Instance) -> str:
    status, by_task = STATUSES.get(instance.vm_state, ("UNKNOWN", {}))
    return by_task.get(instance.task_state or "", status)


def states_of(statuses: list[str]) -> tuple[list[str], list[str]]:
    """Return the vm_states and task_states of these statuses, for a filter.

    No vm_states: none of them is a status. No task_states: the task does not matter.
    """
    names = {status.upper() for status in statuses}
    plain = [vm_state for vm_state, (status, _) in STATUSES.items() if status in names]
    busy = [
        (vm_state, task)
        for vm_state, (_, by_task) in STATUSES.items()
        for task, status in by_task.items()
        if status in names
    ]
    vm_states = list(dict.fromkeys([*plain, *(vm_state for vm_state, _ in busy)]))
    return vm_states, [] if plain else list(dict.fromkeys(task for _, task in busy))


class Form(NamedTuple):
    """All that a view depends on, apart from the server. Equal forms of one server give equal views.

    Views are cached by their form, so the functions that make a view get no request.

    - ``minor``: of the API's version
    - ``url``, ``bookmark_url``: front of links, with and without the API's version
    - ``is_admin``: the caller sees all details of faults
    - ``with_attributes``, ``with_host_status``, ``with_specs``: what policies allow the caller to see
    - ``with_groups``: the view of a single server
    """

    minor: int
    url: str
    bookmark_url: str
    is_admin: bool
    with_attributes: bool
    with_host_status: bool
    with_specs: bool
    with_groups: bool

    def has(self, change: Change) -> bool:
        return self.minor >= change


def _forms(req: Request, instances: list[Instance], with_groups: bool = False) -> list[Form]:
    """Return the form of each server. Policies may depend on its project and user."""
    forms: dict[tuple[str, str], Form] = {}
    found = []
    for instance in instances:
        owner = (instance.project_id, instance.user_id)
        form = forms.get(owner)
        if form is None:
            form = forms[owner] = _form(req, instance, with_groups)
        found.append(form)
    return found


def _form(req: Request, instance: Instance, with_groups: bool) -> Form:
    target = {"project_id": instance.project_id, "user_id": instance.user_id}
    return Form(
        minor=req.version.minor,
        url=req.link(),
        bookmark_url=req.bookmark(),
        is_admin=bool(req.context.is_admin),
        with_attributes=req.allows(policies.EXTENDED_ATTRIBUTES, target),
        with_host_status=req.has(Change.SERVER_HOST_STATUS) and req.allows(policies.HOST_STATUS, target),
        with_specs=req.has(Change.FLAVOR_EMBEDDED) and req.allows(policies.FLAVOR_EXTRA_SPECS, target),
        with_groups=with_groups and req.has(Change.SERVER_GROUPS),
    )


def index(req: Request, instances: list[Instance]) -> list[dict[str, Any]]:
    return [
        {"id": item.uuid, "name": item.display_name, "links": req.links("servers", item.uuid)} for item in instances
    ]


def created(req: Request, instance: Instance, admin_password: str | None) -> dict[str, Any]:
    """Return the response to a create, the only one with ``admin_password``."""
    server = {
        "id": instance.uuid,
        "links": req.links("servers", instance.uuid),
        "OS-DCF:diskConfig": _disk_config(instance),
        "security_groups": _security_groups(instance),
    }
    if admin_password is not None:
        server["adminPass"] = admin_password
    return server


def detail(req: Request, instances: list[Instance]) -> list[Any]:
    """Return the views of servers: values, or JSON texts from the cache."""
    forms = _forms(req, instances)
    return [shared_objects.view(instance, form, _whole) for instance, form in zip(instances, forms, strict=True)]


def show(req: Request, instance: Instance) -> Any:
    """Return the view of one server: a value, or a JSON text from the cache."""
    return shared_objects.view(instance, _form(req, instance, with_groups=True), _whole)


def updated(req: Request, instance: Instance) -> dict[str, Any]:
    """Return the response to an update.

    It equals `show` since 2.75. Before, it lacks the attributes that extensions added.
    """
    form = _form(req, instance, with_groups=True)
    if req.has(Change.STRICT_QUERIES):
        return _whole(instance, form)
    server = _plain(instance, form, with_mac=False)
    if form.with_groups:
        server["server_groups"] = _groups(instance)
    return server


def rebuilt(req: Request, instance: Instance, admin_password: str | None) -> dict[str, Any]:
    """Return the response to a rebuild: that of an update, and what else a rebuild may change."""
    server = updated(req, instance)
    if req.has(Change.REBUILD_KEY):
        server["key_name"] = instance.key_name
    if req.has(Change.NO_PERSONALITY):
        # All callers, including admins, see it under this name.
        server.pop("OS-EXT-SRV-ATTR:user_data", None)
        server["user_data"] = instance.user_data
    if admin_password is not None:
        server["adminPass"] = admin_password
    return server


def _whole(instance: Instance, form: Form) -> dict[str, Any]:
    server = _plain(instance, form, with_mac=True)
    server.update(
        {
            "OS-EXT-AZ:availability_zone": instance.availability_zone or "",
            "config_drive": "True" if instance.config_drive else "",
            "key_name": instance.key_name,
            "OS-SRV-USG:launched_at": view_helpers.iso_micros(instance.launched_at),
            "OS-SRV-USG:terminated_at": view_helpers.iso_micros(instance.terminated_at),
            "OS-EXT-STS:task_state": instance.task_state,
            "OS-EXT-STS:vm_state": instance.vm_state,
            "OS-EXT-STS:power_state": instance.power_state,
            "os-extended-volumes:volumes_attached": _volumes(instance, form),
        }
    )
    if instance.vifs and (groups := _security_groups(instance)):  # as in Nova, the key is absent if there are none
        server["security_groups"] = groups
    if form.with_attributes:
        server.update(_attributes_for_admins(instance, form))
    if form.has(Change.SERVER_HOSTNAME):
        server["OS-EXT-SRV-ATTR:hostname"] = instance.hostname
    if form.with_host_status:
        server["host_status"] = (instance.host_status or "UNKNOWN") if instance.host else ""
    if form.has(Change.PINNED_ZONE):
        server["pinned_availability_zone"] = instance.requested_availability_zone
    if form.has(Change.SCHEDULER_HINTS):
        server["scheduler_hints"] = instance.scheduler_hints
    if form.with_groups:
        server["server_groups"] = _groups(instance)
    return server


def _plain(instance: Instance, form: Form, with_mac: bool) -> dict[str, Any]:
    """Return the attributes of a server, without the additions of extensions at 2.1."""
    status = status_of(instance)
    server: dict[str, Any] = {
        "id": instance.uuid,
        "name": instance.display_name,
        "status": status,
        "tenant_id": instance.project_id,
        "user_id": instance.user_id,
        "metadata": instance.metadata,
        "hostId": host_id(instance.project_id, instance.host),
        "image": _image(instance, form),
        "flavor": _flavor(instance, form),
        "created": view_helpers.iso_seconds(instance.created_at),
        "updated": view_helpers.iso_seconds(instance.updated_at or instance.created_at),
        "addresses": addresses(instance, with_mac),
        "accessIPv4": instance.access_ip_v4 or "",
        "accessIPv6": instance.access_ip_v6 or "",
        "links": [
            {"rel": "self", "href": f"{form.url}/servers/{instance.uuid}"},
            {"rel": "bookmark", "href": f"{form.bookmark_url}/servers/{instance.uuid}"},
        ],
        "OS-DCF:diskConfig": _disk_config(instance),
    }
    if status in _WITH_PROGRESS:
        server["progress"] = instance.progress
    if status in _WITH_FAULT and instance.fault is not None:
        server["fault"] = _fault(instance, form)
    if form.has(Change.SERVER_LOCKED):
        server["locked"] = instance.locked
    if form.has(Change.SERVER_DESCRIPTION):
        server["description"] = instance.display_description
    if form.has(Change.SERVER_TAGS):
        server["tags"] = instance.tags
    if form.has(Change.TRUSTED_CERTIFICATES):
        server["trusted_image_certificates"] = None
    if form.has(Change.LOCKED_REASON):
        server["locked_reason"] = instance.locked_reason
    return server


def may_show_user_data(req: Request) -> bool:
    """Check whether `detail` may show the user data of any server that the caller can list."""
    if not req.has(Change.SERVER_EXTENDED_ATTRIBUTES):
        return False
    return req.allows(policies.EXTENDED_ATTRIBUTES) or req.allows(policies.DETAIL_ALL)


def _attributes_for_admins(instance: Instance, form: Form) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "OS-EXT-SRV-ATTR:host": instance.host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": instance.node,
        "OS-EXT-SRV-ATTR:instance_name": instance.name,
    }
    if form.has(Change.SERVER_EXTENDED_ATTRIBUTES):
        attributes |= {
            "OS-EXT-SRV-ATTR:reservation_id": instance.reservation_id,
            "OS-EXT-SRV-ATTR:launch_index": instance.launch_index,
            "OS-EXT-SRV-ATTR:hostname": instance.hostname,
            "OS-EXT-SRV-ATTR:kernel_id": instance.kernel_id,
            "OS-EXT-SRV-ATTR:ramdisk_id": instance.ramdisk_id,
            "OS-EXT-SRV-ATTR:root_device_name": instance.root_device_name,
            "OS-EXT-SRV-ATTR:user_data": instance.user_data,
        }
    return attributes


@functools.lru_cache(maxsize=4096)
def host_id(project_id: str | None, host: str | None) -> str:
    """Return an opaque name of the host. A project can see whether two of its servers share a host."""
    if not host:
        return ""
    return hashlib.sha224(f"{project_id or ''}{host}".encode()).hexdigest()


def addresses(instance: Instance, with_mac: bool = False) -> dict[str, list[dict[str, Any]]]:
    networks: dict[str, list[dict[str, Any]]] = {}
    for vif in instance.vifs:
        shown = networks.setdefault(vif.network.name, [])
        shown.append(_address(vif, vif.address, "fixed", with_mac))
        shown += [_address(vif, address.address, "fixed", with_mac) for address in vif.more]
        if vif.floating_address is not None:
            shown.append(_address(vif, vif.floating_address, "floating", with_mac))
    return networks


def _address(vif: VIF, text: str, kind: str, with_mac: bool) -> dict[str, Any]:
    address: dict[str, Any] = {"version": version_of(text), "addr": text}
    if with_mac:
        address["OS-EXT-IPS:type"] = kind
        address["OS-EXT-IPS-MAC:mac_addr"] = vif.mac_address
    return address


def _security_groups(instance: Instance) -> list[dict[str, str]]:
    return [{"name": name} for name in instance.interface_groups()]


def _groups(instance: Instance) -> list[str]:
    return [] if instance.server_group is None else [instance.server_group]


def _disk_config(instance: Instance) -> str:
    return "AUTO" if instance.auto_disk_config else "MANUAL"


def _volumes(instance: Instance, form: Form) -> list[dict[str, Any]]:
    attached = [device for device in instance.block_devices if device.volume_id is not None]
    if not form.has(Change.SERVER_EXTENDED_ATTRIBUTES):
        return [{"id": device.volume_id} for device in attached]
    return [{"id": device.volume_id, "delete_on_termination": device.delete_on_termination} for device in attached]


def _image(instance: Instance, form: Form) -> Any:
    if not instance.image_ref:
        return ""
    link = {"rel": "bookmark", "href": f"{form.bookmark_url}/images/{instance.image_ref}"}
    image: dict[str, Any] = {"id": instance.image_ref, "links": [link]}
    if form.has(Change.IMAGE_PROPERTIES):
        image["properties"] = image_properties.shown(instance.system_metadata)
    return image


def _flavor(instance: Instance, form: Form) -> dict[str, Any]:
    flavor = instance.flavor
    if not form.has(Change.FLAVOR_EMBEDDED):
        link = {"rel": "bookmark", "href": f"{form.bookmark_url}/flavors/{flavor.flavorid}"}
        return {"id": flavor.flavorid, "links": [link]}
    return flavors.embedded_view(flavor, with_specs=form.with_specs)


def _fault(instance: Instance, form: Form) -> dict[str, Any]:
    assert instance.fault is not None
    fault: dict[str, Any] = {
        "code": instance.fault.code,
        "created": view_helpers.iso_seconds(instance.fault.created_at),
        "message": instance.fault.message,
    }
    if instance.fault.details and (instance.fault.code != 500 or form.is_admin):
        fault["details"] = instance.fault.details
    return fault
