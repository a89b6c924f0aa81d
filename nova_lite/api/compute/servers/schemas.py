"""Schemas of ``/servers``: create, update, rebuild, and list."""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned

# --- create

#: Maximum number of interfaces of a server, which is a limit of the guest's slots. Nova has no such limit.
MAX_NETWORKS = 32

_NETWORK_21: t.Schema = {
    "fixed_ip": t.IP_ADDRESS,
    "port": {"oneOf": [t.UUID, {"type": "null"}]},
    "uuid": {"type": "string"},
}
_NETWORKS_21: t.Schema = {"type": "array", "items": t.strict(_NETWORK_21), "maxItems": MAX_NETWORKS}
_NETWORKS_TAGGED_21: t.Schema = {**_NETWORKS_21, "items": t.strict({**_NETWORK_21, "tag": t.TAG})}


def _networks_or_word(item: t.Schema) -> t.Schema:
    return {
        "oneOf": [
            {"type": "array", "items": t.strict({**item, "uuid": t.UUID}), "maxItems": MAX_NETWORKS},
            t.one_of("none", "auto"),
        ]
    }


#: Interfaces of a new server, in the newest form.
NETWORKS = _networks_or_word({**_NETWORK_21, "tag": t.TAG})

_TEXT_OR_NULL: t.Schema = {"type": ["string", "null"], "maxLength": 255}
_DEVICE: t.Schema = {
    "boot_index": {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$"},
    "delete_on_termination": t.BOOLEAN,
    "destination_type": t.one_of("local", "volume"),
    "device_name": {"type": ["string", "null"], "maxLength": 255, "pattern": t.DEVICE_PATTERN},
    **dict.fromkeys(("device_type", "disk_bus", "guest_format"), _TEXT_OR_NULL),
    "no_device": {},
    "source_type": t.one_of("volume", "image", "snapshot", "blank"),
    "uuid": t.TEXT,
    **dict.fromkeys(("volume_id", "image_id", "snapshot_id"), t.UUID),
    "volume_size": {"type": ["integer", "string", "null"], "pattern": "^[0-9]*$", "maximum": t.MAX_INT},
}


def _devices(**more: t.Schema) -> t.Schema:
    return {"type": "array", "items": t.strict({**_DEVICE, **more})}


_SERVER_21: t.Schema = {
    "name": t.NAME,
    "imageRef": t.IMAGE_ID_OR_EMPTY,
    "flavorRef": t.FLAVOR_REF,
    "adminPass": {"type": "string"},
    "metadata": t.METADATA,
    "networks": _NETWORKS_21,
    "OS-DCF:diskConfig": t.DISK_CONFIG,
    "accessIPv4": t.IPV4_OR_EMPTY,
    "accessIPv6": t.IPV6_OR_EMPTY,
    "personality": {
        "type": "array",
        "items": t.strict(
            {"path": {"type": "string", "minLength": 1}, "contents": {"type": "string", "format": "base64"}},
            ("path",),
        ),
    },
    "availability_zone": t.TEXT,
    "block_device_mapping": {"type": "array", "items": {"type": "object"}},
    "block_device_mapping_v2": _devices(),
    "config_drive": {"type": ["boolean", "string"], "anyOf": [t.BOOLEAN, {"enum": [""]}]},
    "key_name": t.TEXT,
    "min_count": t.POSITIVE,
    "max_count": t.POSITIVE,
    "return_reservation_id": t.BOOLEAN,
    "security_groups": {"type": "array", "items": t.strict({"name": t.TEXT})},
    "user_data": {"type": "string", "format": "base64", "maxLength": t.MAX_USER_DATA},
}

_HINT_SERVERS: t.Schema = {"oneOf": [t.UUID, {"type": "array", "items": t.UUID, "minItems": 1}]}
_HINTS: t.Schema = {
    "type": "object",
    "properties": {
        "group": t.UUID,
        "different_host": _HINT_SERVERS,
        "same_host": _HINT_SERVERS,
        "query": {"type": ["string", "object"]},
        "target_cell": {"type": "string", "minLength": 1},
        "build_near_host_ip": t.IP_ADDRESS,
        "cidr": {"type": "string", "pattern": r"^/[0-9a-f.:]+$"},
    },
    "additionalProperties": True,
}


def _create(server: t.Schema, *required: str) -> t.Schema:
    return {
        "type": "object",
        "properties": {
            "server": t.strict(server, ("name", "flavorRef", *required)),
            "os:scheduler_hints": _HINTS,
            "OS-SCH-HNT:scheduler_hints": _HINTS,
        },
        "required": ["server"],
        "additionalProperties": False,
    }


_SERVER_219 = {**_SERVER_21, "description": t.DESCRIPTION}
_SERVER_232 = {**_SERVER_219, "networks": _NETWORKS_TAGGED_21, "block_device_mapping_v2": _devices(tag=t.TAG)}
_SERVER_233 = {**_SERVER_232, "block_device_mapping_v2": _devices()}
_SERVER_237 = {**_SERVER_233, "networks": _networks_or_word(_NETWORK_21)}
_SERVER_242 = {
    **_SERVER_237,
    "networks": NETWORKS,
    "block_device_mapping_v2": _devices(tag=t.TAG),
}
_SERVER_252 = {**_SERVER_242, "tags": t.TAGS}
_SERVER_257 = {key: value for key, value in _SERVER_252.items() if key != "personality"}
_SERVER_263 = {
    **_SERVER_257,
    "trusted_image_certificates": {
        "type": ["array", "null"],
        "minItems": 1,
        "maxItems": 50,
        "uniqueItems": True,
        "items": {"type": "string", "minLength": 1},
    },
}
_SERVER_267 = {
    **_SERVER_263,
    "block_device_mapping_v2": _devices(
        tag=t.TAG, volume_type={"type": ["string", "null"], "minLength": 0, "maxLength": 255}
    ),
}
_SERVER_274 = {**_SERVER_267, "host": t.HOST, "hypervisor_hostname": t.HOST}
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME: t.Schema = {"type": "string", "minLength": 2, "maxLength": 63, "pattern": rf"^{_LABEL}\Z"}
FQDN: t.Schema = {"type": "string", "minLength": 2, "maxLength": 255, "pattern": rf"^{_LABEL}(\.{_LABEL})*\Z"}
_SERVER_290 = {**_SERVER_274, "hostname": _HOSTNAME}
_SERVER_294 = {**_SERVER_274, "hostname": FQDN}

CREATE = Versioned(
    {
        1: _create(_SERVER_21),
        Change.SERVER_DESCRIPTION: _create(_SERVER_219),
        Change.DEVICE_TAGS: _create(_SERVER_232),
        33: _create(_SERVER_233),
        Change.NETWORKS_REQUIRED: _create(_SERVER_237, "networks"),
        Change.DEVICE_TAGS_AGAIN: _create(_SERVER_242, "networks"),
        Change.SERVER_CREATE_TAGS: _create(_SERVER_252, "networks"),
        Change.NO_PERSONALITY: _create(_SERVER_257, "networks"),
        Change.TRUSTED_CERTIFICATES: _create(_SERVER_263, "networks"),
        Change.VOLUME_TYPE: _create(_SERVER_267, "networks"),
        Change.REQUESTED_DESTINATION: _create(_SERVER_274, "networks"),
        Change.SERVER_HOSTNAME: _create(_SERVER_290, "networks"),
        Change.FQDN_HOSTNAME: _create(_SERVER_294, "networks"),
    }
)

# --- update

_UPDATE_21: t.Schema = {
    "name": t.NAME,
    "OS-DCF:diskConfig": t.DISK_CONFIG,
    "accessIPv4": t.IPV4_OR_EMPTY,
    "accessIPv6": t.IPV6_OR_EMPTY,
}
_UPDATE_219 = {**_UPDATE_21, "description": t.DESCRIPTION}

_UPDATE_294 = {**_UPDATE_219, "hostname": FQDN}

UPDATE = Versioned(
    {
        1: t.wrapped("server", t.strict(_UPDATE_21)),
        Change.SERVER_DESCRIPTION: t.wrapped("server", t.strict(_UPDATE_219)),
        Change.SERVER_HOSTNAME: t.wrapped("server", t.strict({**_UPDATE_219, "hostname": _HOSTNAME})),
        Change.FQDN_HOSTNAME: t.wrapped("server", t.strict(_UPDATE_294)),
        Change.ZONE_PINNED_LATER: t.wrapped(
            "server", t.strict({**_UPDATE_294, "pinned_availability_zone": {"oneOf": [t.NAME, {"type": "null"}]}})
        ),
    }
)

_PERSONALITY = _SERVER_21["personality"]
_REBUILD_21: t.Schema = {
    "imageRef": t.UUID,
    "name": t.NAME,
    "adminPass": {"type": "string"},
    "metadata": t.METADATA,
    "preserve_ephemeral": t.BOOLEAN,
    "OS-DCF:diskConfig": t.DISK_CONFIG,
    "accessIPv4": t.IPV4_OR_EMPTY,
    "accessIPv6": t.IPV6_OR_EMPTY,
    "personality": _PERSONALITY,
}
_REBUILD_219 = {**_REBUILD_21, "description": t.DESCRIPTION}
_REBUILD_254 = {**_REBUILD_219, "key_name": {"oneOf": [t.TEXT, {"type": "null"}]}}
_REBUILD_257 = {
    **{key: value for key, value in _REBUILD_254.items() if key != "personality"},
    "user_data": {**_SERVER_21["user_data"], "type": ["string", "null"]},
}
_REBUILD_263 = {**_REBUILD_257, "trusted_image_certificates": _SERVER_263["trusted_image_certificates"]}


def _rebuild(properties: t.Schema) -> t.Schema:
    return t.wrapped("rebuild", t.strict(properties, ("imageRef",)))


REBUILD = Versioned(
    {
        1: _rebuild(_REBUILD_21),
        Change.SERVER_DESCRIPTION: _rebuild(_REBUILD_219),
        Change.REBUILD_KEY: _rebuild(_REBUILD_254),
        Change.NO_PERSONALITY: _rebuild(_REBUILD_257),
        Change.TRUSTED_CERTIFICATES: _rebuild(_REBUILD_263),
        Change.SERVER_HOSTNAME: _rebuild({**_REBUILD_263, "hostname": _HOSTNAME}),
        Change.FQDN_HOSTNAME: _rebuild({**_REBUILD_263, "hostname": FQDN}),
    }
)

# --- list

_SORT_KEYS = [
    "access_ip_v4",
    "access_ip_v6",
    "auto_disk_config",
    "availability_zone",
    "config_drive",
    "created_at",
    "display_description",
    "display_name",
    "host",
    "hostname",
    "image_ref",
    "instance_type_id",
    "kernel_id",
    "key_name",
    "launch_index",
    "launched_at",
    "locked_by",
    "node",
    "power_state",
    "progress",
    "project_id",
    "ramdisk_id",
    "root_device_name",
    "task_state",
    "terminated_at",
    "updated_at",
    "user_id",
    "uuid",
    "vm_state",
]


def _sort_key(*more: str) -> t.Schema:
    return t.repeatable(t.one_of(*_SORT_KEYS, *more))


#: Parameters with arbitrary text as value.
_PLAIN = [
    "user_id",
    "project_id",
    "tenant_id",
    "launch_index",
    "image_ref",
    "image",
    "kernel_id",
    "ramdisk_id",
    "hostname",
    "key_name",
    "instance_type_id",
    "flavor",
    "status",
    "vm_state",
    "task_state",
    "description",
    "display_description",
    "uuid",
    "access_ip_v4",
    "access_ip_v6",
    "availability_zone",
    "host",
    "node",
    "locked_by",
    "root_device_name",
    "auto_disk_config",
    "soft_deleted",
    "not_deleted",
    "reservation_id",
    "metadata",
    "system_metadata",
    "hypervisor_hostname",
]

_LIST_21: t.Schema = {
    **t.PAGING,
    "sort_key": _sort_key(),
    "sort_dir": t.Q_SORT_DIR,
    "all_tenants": t.Q_ANY,
    "name": t.Q_REGEX,
    "display_name": t.Q_REGEX,
    "ip": t.Q_REGEX,
    "ip6": t.Q_REGEX,
    "changes-since": t.Q_TIME,
    "created_at": t.Q_TIME,
    "launched_at": t.Q_TIME,
    "terminated_at": t.Q_TIME,
    "config_drive": t.Q_ANY,
    "power_state": t.repeatable({"type": "string", "pattern": "^[0-9]{1,3}$"}),
    "progress": t.repeatable({"type": "string", "pattern": "^[0-9]{1,3}$"}),
    "deleted": t.Q_ANY,
    **dict.fromkeys(_PLAIN, t.Q_ANY),
}
_LIST_226 = {**_LIST_21, **dict.fromkeys(("tags", "tags-any", "not-tags", "not-tags-any"), t.Q_ANY)}
_LIST_266 = {**_LIST_226, "changes-before": t.Q_TIME}
_LIST_273 = {**_LIST_266, "sort_key": _sort_key("locked"), "locked": t.Q_BOOLEAN}

INDEX = t.query(
    _LIST_21, {Change.SERVER_TAGS: _LIST_226, Change.CHANGES_BEFORE: _LIST_266, Change.LOCKED_REASON: _LIST_273}
)
