"""Facts about Nova's versioned notifications, from its documented samples: names, versions and keys of payloads."""

from __future__ import annotations

_ACTION = frozenset(
    {
        "action_initiator_project",
        "action_initiator_user",
        "architecture",
        "auto_disk_config",
        "availability_zone",
        "block_devices",
        "created_at",
        "deleted_at",
        "display_description",
        "display_name",
        "fault",
        "flavor",
        "host",
        "host_name",
        "image_uuid",
        "ip_addresses",
        "kernel_id",
        "key_name",
        "launched_at",
        "locked",
        "locked_reason",
        "metadata",
        "node",
        "os_type",
        "power_state",
        "progress",
        "ramdisk_id",
        "request_id",
        "reservation_id",
        "shares",
        "state",
        "task_state",
        "tenant_id",
        "terminated_at",
        "updated_at",
        "user_id",
        "uuid",
    }
)

#: Class of a payload, its version, and its keys.
CLASSES: dict[str, tuple[str, frozenset[str]]] = {
    "InstanceActionPayload": ("1.9", _ACTION),
    "InstanceCreatePayload": (
        "1.13",
        _ACTION | {"instance_name", "keypairs", "tags", "trusted_image_certificates"},
    ),
    "InstanceActionRebuildPayload": ("1.10", _ACTION | {"trusted_image_certificates"}),
    "InstanceActionRescuePayload": ("1.4", _ACTION | {"rescue_image_ref"}),
    "InstanceActionResizePrepPayload": ("1.4", _ACTION | {"new_flavor"}),
    "InstanceActionSnapshotPayload": ("1.10", _ACTION | {"snapshot_image_id"}),
    "InstanceActionSharePayload": ("1.0", _ACTION | {"share_id"}),
    "InstanceActionVolumePayload": ("1.7", _ACTION | {"volume_id"}),
    "InstanceActionVolumeSwapPayload": ("1.9", _ACTION | {"new_volume_id", "old_volume_id"}),
    "FlavorPayload": (
        "1.4",
        frozenset(
            {
                "description",
                "disabled",
                "ephemeral_gb",
                "extra_specs",
                "flavorid",
                "is_public",
                "memory_mb",
                "name",
                "projects",
                "root_gb",
                "rxtx_factor",
                "swap",
                "vcpu_weight",
                "vcpus",
            }
        ),
    ),
    "IpPayload": (
        "1.0",
        frozenset({"address", "device_name", "label", "mac", "meta", "port_uuid", "version"}),
    ),
    "BlockDevicePayload": (
        "1.0",
        frozenset({"boot_index", "delete_on_termination", "device_name", "tag", "volume_id"}),
    ),
    "ExceptionPayload": (
        "1.1",
        frozenset({"exception", "exception_message", "function_name", "module_name", "traceback"}),
    ),
    "SharePayload": ("1.0", frozenset({"share_id", "share_mapping_uuid", "status", "tag"})),
    "KeypairPayload": ("1.0", frozenset({"fingerprint", "name", "public_key", "type", "user_id"})),
}

_INSTANCE = _ACTION - {"fault"}
CLASSES |= {
    "InstanceUpdatePayload": ("2.1", _INSTANCE | {"state_update", "audit_period", "old_display_name", "tags"}),
    "InstanceExistsPayload": ("2.1", _INSTANCE | {"audit_period"}),
    "InstanceStateUpdatePayload": ("1.0", frozenset({"old_state", "state", "old_task_state", "new_task_state"})),
    "AuditPeriodPayload": ("1.0", frozenset({"audit_period_beginning", "audit_period_ending"})),
}

_CLASS_OF = {
    "create": "InstanceCreatePayload",
    "rebuild": "InstanceActionRebuildPayload",
    "rebuild_scheduled": "InstanceActionRebuildPayload",
    "rescue": "InstanceActionRescuePayload",
    "resize_prep": "InstanceActionResizePrepPayload",
    "snapshot": "InstanceActionSnapshotPayload",
    "share_attach": "InstanceActionSharePayload",
    "share_detach": "InstanceActionSharePayload",
    "volume_attach": "InstanceActionVolumePayload",
    "volume_detach": "InstanceActionVolumePayload",
    "volume_swap": "InstanceActionVolumeSwapPayload",
}
_PAIRS = (
    "delete",
    "interface_detach",
    "live_migration_post",
    "live_migration_post_dest",
    "live_migration_pre",
    "pause",
    "live_migration_rollback",
    "live_migration_rollback_dest",
    "power_off",
    "power_on",
    "rescue",
    "resize_confirm",
    "resize_finish",
    "resize_prep",
    "resize_revert",
    "restore",
    "resume",
    "shelve",
    "shelve_offload",
    "snapshot",
    "soft_delete",
    "suspend",
    "trigger_crash_dump",
    "unpause",
    "unrescue",
    "unshelve",
    "volume_detach",
)
_WITH_ERROR = (
    "create", "interface_attach", "reboot", "rebuild", "resize", "share_attach", "share_detach", "volume_attach",
    "volume_swap",
)  # fmt: skip
_SINGLE = {
    "evacuate": "nova-api",
    "lock": "nova-api",
    "rebuild_scheduled": "nova-conductor",
    "unlock": "nova-api",
}

#: Event type, class of its payload, and the service of its publisher, of all of Nova's samples that we have.
SAMPLES: dict[str, tuple[str, str]] = {
    **{
        f"instance.{name}.{phase}": (_CLASS_OF.get(name, "InstanceActionPayload"), "nova-compute")
        for names, phases in ((_PAIRS, ("start", "end")), (_WITH_ERROR, ("start", "end", "error")))
        for name in names
        for phase in phases
    },
    **{f"instance.{name}": (_CLASS_OF.get(name, "InstanceActionPayload"), source) for name, source in _SINGLE.items()},
}
