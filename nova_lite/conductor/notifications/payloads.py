"""Payloads of Nova's versioned notifications about servers, made from an instance and its action.

Each payload has exactly the fields of Nova's class of that name and version. Secrets have no field: neither passwords
nor user data nor injected files.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from nova_lite.conductor.notifications import periods, states
from nova_lite.conductor.notifications.events import Event
from nova_lite.objects import VIF, BlockDevice, Flavor, Instance, KeyPair, ShareMapping
from nova_lite.operations import Payload, Phase
from nova_lite.operations.states import GUEST_ON, PowerState

#: Version of each class of a payload, as in Nova 2026.1.
VERSIONS = {
    Payload.ACTION: "1.9",
    Payload.CREATE: "1.13",
    Payload.REBUILD: "1.10",
    Payload.RESCUE: "1.4",
    Payload.RESIZE_PREP: "1.4",
    Payload.SNAPSHOT: "1.10",
    Payload.SHARE: "1.0",
    Payload.VOLUME: "1.7",
    Payload.VOLUME_SWAP: "1.9",
}


class Caller(NamedTuple):
    """User and project of the request that a notification is about."""

    request_id: str | None
    user_id: str | None
    project_id: str | None


#: Caller of what no request has caused.
NOBODY = Caller(None, None, None)

#: Nova's names of power states.
_POWER_STATES: dict[int, str] = {
    int(state): "pending" if state is PowerState.NOSTATE else state.name.lower() for state in PowerState
}


def payload_of(event: Event, instance: Instance, keypair: KeyPair | None) -> dict[str, Any]:
    """Return the payload of an event. ``keypair``: that of the instance, if it still exists and the class has it."""
    kind = event.notification.payload
    action = event.change.action
    caller = Caller(action.request_id, action.user_id, action.project_id)
    data = {**_instance(instance, caller), "fault": _fault(event), **_MORE[kind](event, instance, keypair)}
    return payload_object(kind.value, VERSIONS[kind], data)


def update_payload(change: states.StateChange, caller: Caller, period: periods.Period) -> dict[str, Any]:
    """Return the payload of ``instance.update``."""
    data = {
        **_instance(change.instance, caller),
        "state_update": payload_object("InstanceStateUpdatePayload", "1.0", states.fields(change)),
        "audit_period": _audit_period(period),
        "old_display_name": None,
        "tags": change.instance.tags,
    }
    return payload_object("InstanceUpdatePayload", "2.1", data)


def exists_payload(instance: Instance, period: periods.Period) -> dict[str, Any]:
    """Return the payload of ``instance.exists``."""
    data = {**_instance(instance, NOBODY), "audit_period": _audit_period(period)}
    return payload_object("InstanceExistsPayload", "2.1", data)


def _audit_period(period: periods.Period) -> dict[str, Any]:
    data = {
        "audit_period_beginning": payload_time(period.beginning),
        "audit_period_ending": payload_time(period.ending),
    }
    return payload_object("AuditPeriodPayload", "1.0", data)


def _instance(instance: Instance, caller: Caller) -> dict[str, Any]:
    image = instance.system_metadata
    return {
        "uuid": instance.uuid,
        "user_id": instance.user_id,
        "tenant_id": instance.project_id,
        "reservation_id": instance.reservation_id,
        "display_name": instance.display_name,
        "display_description": instance.display_description,
        "host_name": instance.hostname,
        "host": instance.host,
        "node": instance.node,
        "os_type": image.get("image_os_type"),
        "architecture": image.get("image_hw_architecture") or image.get("image_architecture"),
        "availability_zone": instance.availability_zone,
        "flavor": flavor_payload(instance.flavor),
        "image_uuid": instance.image_ref,
        "key_name": instance.key_name,
        "kernel_id": instance.kernel_id,
        "ramdisk_id": instance.ramdisk_id,
        "created_at": payload_time(instance.created_at),
        "launched_at": payload_time(instance.launched_at),
        "terminated_at": payload_time(instance.terminated_at),
        "deleted_at": payload_time(instance.terminated_at) if instance.deleted else None,
        "updated_at": payload_time(instance.updated_at),
        "state": instance.vm_state,
        "power_state": _POWER_STATES.get(instance.power_state, "pending"),
        "task_state": instance.task_state,
        "progress": instance.progress,
        "ip_addresses": [ip for vif in instance.vifs for ip in _ips(vif)],
        "block_devices": [_block_device(device) for device in instance.block_devices if device.volume_id is not None],
        "metadata": instance.metadata,
        "locked": instance.locked,
        "locked_reason": instance.locked_reason,
        "auto_disk_config": "AUTO" if instance.auto_disk_config else "MANUAL",
        "request_id": caller.request_id if caller.user_id and caller.project_id else None,
        "action_initiator_user": caller.user_id,
        "action_initiator_project": caller.project_id,
        "shares": [_share(mapping, instance) for mapping in instance.shares],
    }


def _nothing(event: Event, instance: Instance, keypair: KeyPair | None) -> dict[str, Any]:
    return {}


def _create(event: Event, instance: Instance, keypair: KeyPair | None) -> dict[str, Any]:
    return {
        "keypairs": [] if keypair is None else [keypair_payload(keypair)],
        "tags": instance.tags,
        "trusted_image_certificates": None,
        "instance_name": instance.name,
    }


def _resize_prep(event: Event, instance: Instance, keypair: KeyPair | None) -> dict[str, Any]:
    return {"new_flavor": flavor_payload(msgspec.convert(event.change.action.payload["flavor"], Flavor))}


#: The fields that each class adds.
_MORE: Mapping[Payload, Callable[[Event, Instance, KeyPair | None], dict[str, Any]]] = {
    Payload.ACTION: _nothing,
    Payload.CREATE: _create,
    Payload.REBUILD: lambda event, instance, keypair: {"trusted_image_certificates": None},
    Payload.RESCUE: lambda event, instance, keypair: {
        "rescue_image_ref": (event.change.action.payload.get("image") or {}).get("id")
    },
    Payload.RESIZE_PREP: _resize_prep,
    Payload.SNAPSHOT: lambda event, instance, keypair: {"snapshot_image_id": event.change.action.payload["image_id"]},
    Payload.SHARE: lambda event, instance, keypair: {"share_id": event.change.action.payload["share_id"]},
    Payload.VOLUME: lambda event, instance, keypair: {"volume_id": event.change.action.payload["volume_id"]},
    Payload.VOLUME_SWAP: lambda event, instance, keypair: {
        "old_volume_id": event.change.action.payload["volume_id"],
        "new_volume_id": event.change.action.payload["new_volume_id"],
    },
}


def _fault(event: Event) -> dict[str, Any] | None:
    """Return what went wrong. Its ``traceback`` is empty, because details are for admins only."""
    if event.phase is not Phase.ERROR:
        return None
    data = {
        "module_name": "nova_lite.conductor",
        "function_name": f"{event.change.action.action}/{event.change.step.name if event.change.step else ''}",
        "exception": event.exception,
        "exception_message": event.change.cause,
        "traceback": "",
    }
    return payload_object("ExceptionPayload", "1.1", data)


def flavor_payload(flavor: Flavor, projects: list[str] | None = None) -> dict[str, Any]:
    data = {
        **{name: getattr(flavor, name) for name in ("flavorid", "name", "vcpus", "memory_mb", "root_gb")},
        **{name: getattr(flavor, name) for name in ("ephemeral_gb", "swap", "rxtx_factor", "is_public", "disabled")},
        "description": flavor.description,
        "extra_specs": flavor.extra_specs,
        "projects": projects,
        "vcpu_weight": 0,
    }
    return payload_object("FlavorPayload", "1.4", data)


def _ips(vif: VIF) -> list[dict[str, Any]]:
    addresses = [vif.address, *(ip.address for ip in vif.more)]
    return [
        payload_object(
            "IpPayload",
            "1.0",
            {
                "label": vif.network.name,
                "mac": vif.mac_address,
                "meta": {},
                "port_uuid": vif.id,
                "version": 6 if ":" in address else 4,
                "address": address,
                "device_name": f"tap{vif.id[:11]}",
            },
        )
        for address in addresses
        if address
    ]


def _block_device(device: BlockDevice) -> dict[str, Any]:
    names = ("device_name", "boot_index", "delete_on_termination", "volume_id", "tag")
    return payload_object("BlockDevicePayload", "1.0", {name: getattr(device, name) for name in names})


def _share(mapping: ShareMapping, instance: Instance) -> dict[str, Any]:
    status = mapping.status(instance.power_state in GUEST_ON)
    values = {"share_mapping_uuid": mapping.uuid, "share_id": mapping.share_id, "status": status, "tag": mapping.tag}
    return payload_object("SharePayload", "1.0", values)


def keypair_payload(keypair: KeyPair) -> dict[str, Any]:
    names = ("user_id", "name", "fingerprint", "public_key", "type")
    return payload_object("KeypairPayload", "1.0", {name: getattr(keypair, name) for name in names})


def payload_object(name: str, version: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }


def payload_time(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.replace(microsecond=0).isoformat() + "Z"
