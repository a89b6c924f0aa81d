"""Rules of the volume service: Cinder's names after ``volume:`` and ``volume_extension:``."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, MEMBER, READER, Rules

_volume = Rules("volume")
_extension = Rules("volume_extension")
_ONE = "/v3/volumes/{volume_id}"
_SNAPSHOT = "/v3/snapshots/{snapshot_id}"

LIST = _volume(
    "get_all", READER, "List the volumes of the caller's project", "GET /v3/volumes", "GET /v3/volumes/detail"
)
SHOW = _volume("get", READER, "Show a volume of the caller's project", f"GET {_ONE}")
CREATE = _volume("create", MEMBER, "Create a volume", "POST /v3/volumes")
MULTIATTACH = _volume(
    "multiattach",
    MEMBER,
    "Create a volume of a type with multiattach, or give a volume such a type",
    "POST /v3/volumes",
    f"POST {_ONE}/action (os-retype)",
)
UPDATE = _volume("update", MEMBER, "Change a volume of the caller's project", f"PUT {_ONE}", f"POST {_ONE}/action")
DELETE = _volume("delete", MEMBER, "Delete a volume of the caller's project", f"DELETE {_ONE}")
EXTEND = _volume("extend", MEMBER, "Extend a volume of the caller's project", f"POST {_ONE}/action (os-extend)")
METADATA = _volume("get_volume_metadata", READER, "Show a volume's metadata", f"GET {_ONE}/metadata")
CHANGE_METADATA = _volume(
    "update_volume_metadata", MEMBER, "Change a volume's metadata", f"POST {_ONE}/metadata", f"PUT {_ONE}/metadata"
)
RESET_STATUS = _extension(
    "volume_admin_actions:reset_status", ADMIN, "Set a volume's status", f"POST {_ONE}/action (os-reset_status)"
)
FORCE_DELETE = _extension(
    "volume_admin_actions:force_delete",
    ADMIN,
    "Delete a volume in any state, unless a server has it",
    f"POST {_ONE}/action (os-force_delete)",
)
SHOW_HOST = _extension("volume_host_attribute", ADMIN, "See the host of a volume", f"GET {_ONE}")
SNAPSHOT_LIST = _volume("get_all_snapshots", READER, "List the snapshots of the caller's project", "GET /v3/snapshots")
SNAPSHOT_SHOW = _volume("get_snapshot", READER, "Show a snapshot of the caller's project", f"GET {_SNAPSHOT}")
SNAPSHOT_CREATE = _volume("create_snapshot", MEMBER, "Create a snapshot of a volume", "POST /v3/snapshots")
SNAPSHOT_UPDATE = _volume("update_snapshot", MEMBER, "Change a snapshot of the caller's project", f"PUT {_SNAPSHOT}")
SNAPSHOT_DELETE = _volume("delete_snapshot", MEMBER, "Delete a snapshot of the caller's project", f"DELETE {_SNAPSHOT}")
SNAPSHOT_RESET_STATUS = _extension(
    "snapshot_admin_actions:reset_status", ADMIN, "Set a snapshot's status", f"POST {_SNAPSHOT}/action"
)
SNAPSHOT_UPDATE_STATUS = _extension(
    "snapshot_actions:update_snapshot_status",
    MEMBER,
    "Set the status and progress of a snapshot that is being made",
    f"POST {_SNAPSHOT}/action (os-update_snapshot_status)",
)
SNAPSHOT_FORCE_DELETE = _extension(
    "snapshot_admin_actions:force_delete",
    ADMIN,
    "Delete a snapshot in any state",
    f"POST {_SNAPSHOT}/action (os-force_delete)",
)
ATTACHMENTS = _volume(
    "attachment_list", READER, "List the volume attachments of the caller's project", "GET /v3/attachments"
)
_ATTACHMENT = "/v3/attachments"
CREATE_ATTACHMENT = _volume("attachment_create", MEMBER, "Record an attachment", f"POST {_ATTACHMENT}")
UPDATE_ATTACHMENT = _volume(
    "attachment_update",
    MEMBER,
    "Change an attachment",
    f"PUT {_ATTACHMENT}/{{attachment_id}}",
    f"POST {_ATTACHMENT}/{{attachment_id}}/action",
)
DELETE_ATTACHMENT = _volume(
    "attachment_delete", MEMBER, "End a recorded attachment", f"DELETE {_ATTACHMENT}/{{attachment_id}}"
)
TYPES = _volume("get_all_types", ANYONE, "List volume types", "GET /v3/types", "GET /v3/types/{type_id}")
_TYPE = "/v3/types/{type_id}"
CHANGE_TYPES = _extension(
    "types_manage",
    ADMIN,
    "Create, change and delete volume types, their extra specs and who may use them",
    "POST /v3/types",
    f"PUT {_TYPE}",
    f"DELETE {_TYPE}",
    f"POST {_TYPE}/action",
    f"POST {_TYPE}/extra_specs",
)
TYPE_ACCESS = _extension(
    "volume_type_access:get_all_for_type",
    ADMIN,
    "List the projects that may use a private volume type",
    f"GET {_TYPE}/os-volume-type-access",
)
_QOS = "/v3/qos-specs"
QOS = _extension("qos_specs_manage:get_all", ADMIN, "List QoS specs", f"GET {_QOS}", f"GET {_QOS}/{{qos_id}}")
CHANGE_QOS = _extension(
    "qos_specs_manage:update",
    ADMIN,
    "Create, change and delete QoS specs, and give them to volume types",
    f"POST {_QOS}",
    f"PUT {_QOS}/{{qos_id}}",
    f"DELETE {_QOS}/{{qos_id}}",
    f"GET {_QOS}/{{qos_id}}/associate",
    f"GET {_QOS}/{{qos_id}}/disassociate",
)
ENCRYPTION = _extension("volume_type_encryption:get", ADMIN, "Show a type's encryption", f"GET {_TYPE}/encryption")
CHANGE_ENCRYPTION = _extension(
    "volume_type_encryption:update",
    ADMIN,
    "Set the encryption of a volume type",
    f"POST {_TYPE}/encryption",
    f"PUT {_TYPE}/encryption/{{encryption_id}}",
    f"DELETE {_TYPE}/encryption/{{encryption_id}}",
)
VOLUME_ENCRYPTION = _extension(
    "volume_encryption_metadata",
    READER,
    "Show the encryption of a volume",
    f"GET {_ONE}/encryption",
    f"GET {_ONE}/encryption/{{encryption_key}}",
)
DEFAULT_TYPES = _extension(
    "default_set_or_update",
    ADMIN,
    "Show and set the default volume types of projects",
    "GET /v3/default-types",
    "PUT /v3/default-types/{project_id}",
    "DELETE /v3/default-types/{project_id}",
)
RETYPE = _volume("retype", MEMBER, "Give a volume another type", f"POST {_ONE}/action (os-retype)")
UPLOAD_IMAGE = _extension(
    "volume_actions:upload_image", MEMBER, "Make an image of a volume", f"POST {_ONE}/action (os-volume_upload_image)"
)
UPLOAD_PUBLIC = _extension(
    "volume_actions:upload_public",
    ADMIN,
    "Make a public image of a volume",
    f"POST {_ONE}/action (os-volume_upload_image)",
)
LIMITS = _volume("get_limits", READER, "Show the limits of the caller's project", "GET /v3/limits")
QUOTAS = _extension(
    "quotas:show",
    "rule:context_is_admin or project_id:%(project_id)s",
    "Show a project's quota",
    "GET /v3/os-quota-sets/{project_id}",
)
SERVICES = _extension("services:index", ADMIN, "List the hosts that do the work on volumes", "GET /v3/os-services")
CHANGE_SERVICES = _extension(
    "services:update", ADMIN, "Change a host that does the work on volumes (not supported)", "PUT /v3/os-services"
)
HOSTS = _extension("hosts", ADMIN, "List these hosts with their volumes", "GET /v3/os-hosts")
POOLS = _extension("scheduler_stats:get_pools", ADMIN, "List the pools of storage", "GET /v3/scheduler-stats/get_pools")
CAPABILITIES = _extension("capabilities", ADMIN, "Show what a backend can do", "GET /v3/capabilities/{host}")
IMAGE_METADATA = _extension(
    "volume_image_metadata:set",
    MEMBER,
    "Change the image metadata of a volume",
    f"POST {_ONE}/action (os-set_image_metadata)",
    f"POST {_ONE}/action (os-unset_image_metadata)",
)
UPDATE_CLASSES = _extension(
    "quota_classes", ADMIN, "Set the limits of all projects without own ones", "PUT /v3/os-quota-class-sets/{name}"
)
UPDATE_QUOTAS = _extension("quotas:update", ADMIN, "Set limits of a project", "PUT /v3/os-quota-sets/{project_id}")
DELETE_QUOTAS = _extension(
    "quotas:delete", ADMIN, "Give a project the default limits again", "DELETE /v3/os-quota-sets/{project_id}"
)
_TRANSFER = "/v3/os-volume-transfer"
TRANSFER_LIST = _volume(
    "get_all_transfers",
    READER,
    "List the offers of volumes of the caller's project",
    f"GET {_TRANSFER}",
    f"GET {_TRANSFER}/{{transfer_id}}",
)
TRANSFER_CREATE = _volume("create_transfer", MEMBER, "Offer a volume to another project", f"POST {_TRANSFER}")
TRANSFER_ACCEPT = _volume(
    "accept_transfer", MEMBER, "Accept an offered volume", f"POST {_TRANSFER}/{{transfer_id}}/accept"
)
TRANSFER_DELETE = _volume("delete_transfer", MEMBER, "Withdraw an offer", f"DELETE {_TRANSFER}/{{transfer_id}}")
_backup = Rules("backup")
_BACKUPS = "/v3/backups"
_BACKUP = f"{_BACKUPS}/{{backup_id}}"
BACKUP_LIST = _backup("get_all", READER, "List the backups of the caller's project", f"GET {_BACKUPS}")
BACKUP_SHOW = _backup("get", READER, "Show a backup of the caller's project", f"GET {_BACKUP}")
BACKUP_CREATE = _backup("create", MEMBER, "Back up a volume of the caller's project", f"POST {_BACKUPS}")
BACKUP_UPDATE = _backup("update", MEMBER, "Change a backup of the caller's project", f"PUT {_BACKUP}")
BACKUP_DELETE = _backup("delete", MEMBER, "Delete a backup of the caller's project", f"DELETE {_BACKUP}")
BACKUP_RESTORE = _backup("restore", MEMBER, "Restore a backup of the caller's project", f"POST {_BACKUP}/restore")
BACKUP_EXPORT = _backup("export-import", ADMIN, "Export the record of a backup", f"GET {_BACKUP}/export_record")
BACKUP_IMPORT = _backup("backup-import", ADMIN, "Import the record of a backup", f"POST {_BACKUPS}/import_record")
BACKUP_PROJECT = _backup("backup_project_attribute", ADMIN, "See the project of a backup", f"GET {_BACKUP}")
BACKUP_RESET_STATUS = _extension(
    "backup_admin_actions:reset_status", ADMIN, "Set a backup's status", f"POST {_BACKUP}/action (os-reset_status)"
)
BACKUP_FORCE_DELETE = _extension(
    "backup_admin_actions:force_delete",
    ADMIN,
    "Delete a backup in any state",
    f"POST {_BACKUP}/action (os-force_delete)",
)
ZONES = _volume("availability_zone_list", ANYONE, "List availability zones", "GET /v3/os-availability-zone")
EXTENSIONS = _volume("extension_list", ANYONE, "List extensions", "GET /v3/extensions")
ABSENT = _volume(
    "get_absent",
    ANYONE,
    "List resources that this cloud does not have, such as groups (always empty)",
    "GET /v3/consistencygroups",
    "GET /v3/groups",
    "GET /v3/group_types",
)
