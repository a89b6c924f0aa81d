"""Nova's older notifications, which have no version: event types, publishers, and payloads.

Ceilometer and other consumers of the event ``compute.instance.create.end`` need them.
"""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.conductor.notifications import states
from nova_lite.conductor.notifications.events import Event
from nova_lite.conductor.notifications.periods import Period
from nova_lite.objects import VIF, Instance
from nova_lite.operations import Phase

#: Older names of events that differ from the versioned name.
NAMES = {
    "live_migration_post": "live_migration._post",
    "live_migration_post_dest": "live_migration.post.dest",
    "live_migration_pre": "live_migration.pre",
    "live_migration_rollback": "live_migration._rollback",
    "live_migration_rollback_dest": "live_migration.rollback.dest",
    "rebuild_scheduled": "rebuild.scheduled",
    "resize_confirm": "resize.confirm",
    "resize_finish": "finish_resize",
    "resize_prep": "resize.prep",
    "resize_revert": "resize.revert",
}

#: Events that Nova has in the versioned format only.
VERSIONED_ONLY = frozenset(
    {
        "evacuate", "interface_attach", "interface_detach", "lock", "share_attach", "share_detach",
        "trigger_crash_dump", "unlock", "volume_swap",
    }
)  # fmt: skip

#: Events with one older event, after success, whose type has no phase.
AT_END = {"volume_attach": "volume.attach", "volume_detach": "volume.detach"}


def event_type(event: Event) -> str | None:
    """Return the older type of an event; None: it has none."""
    name = event.notification.name
    if name in VERSIONED_ONLY:
        return None
    if name in AT_END:
        return f"compute.instance.{AT_END[name]}" if event.phase is Phase.END else None
    known = f"compute.instance.{NAMES.get(name, name)}"
    return known if event.phase is None else f"{known}.{event.phase}"


def publisher_id(event: Event, host: str) -> str:
    """Return the older form of the publisher's id: ``compute.HOST``."""
    return f"{event.source().removeprefix('nova-')}.{host}"


def update_payload(change: states.StateChange, period: Period) -> dict[str, Any]:
    """Return the older payload of ``compute.instance.update``."""
    return {
        **_instance(change.instance),
        **states.fields(change),
        "audit_period_beginning": _zoned(period.beginning),
        "audit_period_ending": _zoned(period.ending),
    }


def exists_payload(instance: Instance, period: Period) -> dict[str, Any]:
    """Return the older payload of ``compute.instance.exists``."""
    return {
        **_instance(instance),
        "audit_period_beginning": str(period.beginning),
        "audit_period_ending": str(period.ending),
    }


def payload_of(event: Event, instance: Instance) -> dict[str, Any]:
    """Return the older payload of an event."""
    payload, action = _instance(instance), event.change.action
    if event.phase is Phase.ERROR:
        payload |= {"message": event.change.cause, "exception": event.exception, "code": 500}
    elif event.notification.name == "create" and event.phase is Phase.END:
        payload["message"] = "Success"
    if event.notification.name in AT_END:
        payload["volume_id"] = action.payload["volume_id"]
    if event.notification.name == "resize_prep" and event.phase is Phase.END:
        new = action.payload["flavor"]
        payload |= {"new_instance_type": new["name"], "new_instance_type_id": new.get("id", 0)}
    return payload


def _instance(instance: Instance) -> dict[str, Any]:
    flavor = instance.flavor
    image = {key[6:]: value for key, value in instance.system_metadata.items() if key.startswith("image_")}
    return {
        "tenant_id": instance.project_id,
        "user_id": instance.user_id,
        "instance_id": instance.uuid,
        "display_name": instance.display_name,
        "reservation_id": instance.reservation_id,
        "hostname": instance.hostname,
        "instance_type": flavor.name,
        "instance_type_id": flavor.id,
        "instance_flavor_id": flavor.flavorid,
        "architecture": image.get("hw_architecture") or image.get("architecture"),
        "memory_mb": flavor.memory_mb,
        "disk_gb": flavor.root_gb + flavor.ephemeral_gb,
        "vcpus": flavor.vcpus,
        "root_gb": flavor.root_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "host": instance.host,
        "node": instance.node,
        "availability_zone": instance.availability_zone,
        "cell_name": "",
        "created_at": "" if instance.created_at is None else f"{instance.created_at.replace(microsecond=0)}+00:00",
        "terminated_at": _time(instance.terminated_at),
        "deleted_at": _time(instance.terminated_at) if instance.deleted else "",
        "launched_at": _time(instance.launched_at),
        "image_ref_url": instance.image_ref,
        "os_type": image.get("os_type"),
        "kernel_id": instance.kernel_id,
        "ramdisk_id": instance.ramdisk_id,
        "state": instance.vm_state,
        "state_description": instance.task_state or "",
        "progress": instance.progress or "",
        "access_ip_v4": instance.access_ip_v4,
        "access_ip_v6": instance.access_ip_v6,
        "fixed_ips": [ip for vif in instance.vifs for ip in _fixed_ips(vif)],
        "image_meta": image,
        "metadata": instance.metadata,
    }


def _zoned(time: datetime.datetime) -> str:
    return time.replace(microsecond=0).isoformat() + "Z"


def _fixed_ips(vif: VIF) -> list[dict[str, Any]]:
    addresses = [vif.address, *(ip.address for ip in vif.more)]
    return [
        {
            "address": address,
            "type": "fixed",
            "version": 6 if ":" in address else 4,
            "meta": {},
            "floating_ips": [],
            "label": vif.network.name,
            "vif_mac": vif.mac_address,
        }
        for address in addresses
        if address
    ]


def _time(time: datetime.datetime | None) -> str:
    return "" if time is None else time.isoformat(timespec="microseconds")
