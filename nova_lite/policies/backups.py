"""Rules of backup policies, and of the backups of servers that they make."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, READER, Rules

_policies = Rules("os_compute_api:os-backup-policies")
_backups = Rules("os_compute_api:os-server-backups")
_POLICIES = "/os-backup-policies"
_POLICY = f"{_POLICIES}/{{backup_policy_id}}"
_BACKUPS = "/os-server-backups"
_BACKUP = f"{_BACKUPS}/{{server_backup_id}}"

INDEX = _policies("index", READER, "List a project's backup policies", f"GET {_POLICIES}")
INDEX_ALL = _policies(
    "index:all_projects", ADMIN, "List the backup policies of all projects", f"GET {_POLICIES}?all_projects=True"
)
SHOW = _policies("show", READER, "Show a backup policy", f"GET {_POLICY}")
STATUS = _policies("status", READER, "Show which servers a backup policy protects", f"GET {_POLICY}/status")
CREATE = _policies("create", MEMBER, "Create a backup policy", f"POST {_POLICIES}")
UPDATE = _policies("update", MEMBER, "Change a backup policy", f"PUT {_POLICY}")
DELETE = _policies("delete", MEMBER, "Delete a backup policy", f"DELETE {_POLICY}")
RUN = _policies("run", MEMBER, "Back up the servers of a policy now", f"POST {_POLICY}/run")

BACKUP_INDEX = _backups("index", READER, "List the backups of a project's servers", f"GET {_BACKUPS}")
BACKUP_INDEX_ALL = _backups(
    "index:all_projects", ADMIN, "List the backups of all projects", f"GET {_BACKUPS}?all_projects=True"
)
BACKUP_SHOW = _backups("show", READER, "Show a backup of a server", f"GET {_BACKUP}")
BACKUP_FILES = _backups(
    "files",
    MEMBER,
    "List and download files of a server's backup",
    f"GET {_BACKUP}/partitions",
    f"GET {_BACKUP}/files",
    f"GET {_BACKUP}/download",
)
BACKUP_LOCK = _backups("lock", MEMBER, "Lock a backup of a server until a time", f"PUT {_BACKUP}/lock")
BACKUP_RESTORE = _backups("restore", MEMBER, "Restore a server in place from its backup", f"POST {_BACKUP}/restore")
BACKUP_CREATE_SERVER = _backups(
    "create_server", MEMBER, "Create a server of another one's backup", f"POST {_BACKUP}/servers"
)
BACKUP_IMAGE = _backups("create_image", MEMBER, "Make an image of a server's backup", f"POST {_BACKUP}/image")
BACKUP_DELETE = _backups("delete", MEMBER, "Delete a backup of a server and its image", f"DELETE {_BACKUP}")
