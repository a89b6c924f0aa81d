"""Errors of services, compute hosts, aggregates, and server groups."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict, Forbidden, Invalid, NotFound, ServiceUnavailable


class UnsuitableHost(Invalid):
    """A request that the server's host cannot carry out."""

    msg_fmt = "The server's host is not suitable. %(reason)s"


class AvailabilityZoneUnavailable(Invalid):
    msg_fmt = "The requested availability zone is not available"


class ServerGroupUnavailable(Invalid):
    msg_fmt = "Instance group %(group_uuid)s could not be found."


class ComputeHostUnknown(Invalid):
    msg_fmt = "Compute host %(host)s could not be found."


class HostNotForcedDown(Invalid):
    msg_fmt = (
        "Compute host %(host)s is not forced down. Its servers can be evacuated once its service is (forced_down): "
        "that is your word that nothing runs there any more."
    )


class FenceFailed(ServiceUnavailable):
    """A host whose power could not be switched off or read."""

    msg_fmt = "%(reason)s"


class ServiceNotFound(NotFound):
    msg_fmt = "Service %(service_id)s could not be found."


class ComputeHostNotFound(NotFound):
    msg_fmt = "Compute host %(host)s could not be found."


class ComputeNodeNotFound(NotFound):
    msg_fmt = "Hypervisor with ID '%(node_id)s' could not be found."


class NoHypervisorMatches(NotFound):
    msg_fmt = "No hypervisor matching '%(pattern)s' could be found."


class HostBinaryNotFound(NotFound):
    msg_fmt = "Could not find binary %(binary)s on host %(host)s."


class HostNotFound(NotFound):
    msg_fmt = "Compute host %(host)s could not be found."


class AggregateNotFound(NotFound):
    msg_fmt = "Aggregate %(aggregate_id)s could not be found."


class AggregateHostNotFound(NotFound):
    msg_fmt = "Aggregate %(aggregate_id)s has no host %(host)s."


class ServerGroupNotFound(NotFound):
    msg_fmt = "Instance group %(group_uuid)s could not be found."


class BackupPolicyNotFound(NotFound):
    msg_fmt = "Backup policy %(policy_id)s could not be found."


class ServerBackupNotFound(NotFound):
    msg_fmt = "Backup %(backup_id)s of a server could not be found."


class ServerBackupNotComplete(Conflict):
    msg_fmt = "Backup %(backup_id)s is %(status)s. Only a complete backup can be restored."


class ServerOfBackupGone(Conflict):
    msg_fmt = (
        "Server %(instance_id)s does not exist any more. Create a new one of its backup: POST "
        "/os-server-backups/%(backup_id)s/servers."
    )


class ServerBackupRunning(Conflict):
    msg_fmt = "Backup %(backup_id)s is being made. Delete it when it is complete."


class ServerBackupLocked(Conflict):
    msg_fmt = (
        "Backup %(backup_id)s is locked until %(locked_until)s. No user can remove it earlier, or shorten its lock."
    )


class ServerBackupNotLockable(Conflict):
    msg_fmt = "Backup %(backup_id)s cannot be locked: %(reason)s."


class BackupFileNotFound(NotFound):
    msg_fmt = "Backup %(backup_id)s: %(reason)s."


class BackupFilesUnreadable(Conflict):
    msg_fmt = "Files of backup %(backup_id)s cannot be read: %(reason)s."


class ServerBackupInRepository(Conflict):
    msg_fmt = (
        "The data of backup %(backup_id)s are in the repository. Make an image of it first: POST "
        "/os-server-backups/%(backup_id)s/image."
    )


class BackupDataInvalid(Invalid):
    msg_fmt = "The data of a backup cannot be used: %(reason)s."


class BackupRepositoryError(ServiceUnavailable):
    msg_fmt = "The repository of backups: %(reason)s"


class BackupRepositoryStalled(BackupRepositoryError):
    pass


class SiteJournalUnavailable(ServiceUnavailable):
    msg_fmt = "The journal of replicated servers cannot be used: %(reason)s."


class ServerAtOtherSite(Conflict):
    msg_fmt = (
        "Server %(instance_id)s is replicated, and its role at this site is %(role)s. Until it is primary, nothing may "
        "start or change it here."
    )


class ServiceInUse(Conflict):
    msg_fmt = "Service %(service_id)s cannot be deleted: %(reason)s"


class ServiceHostsInstances(ServiceInUse):
    msg_fmt = "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."


class ServiceHasCleanups(ServiceInUse):
    msg_fmt = (
        "Unable to delete compute service that has still to remove what was deleted on host %(host)s. Start it there, "
        "or, if the host is permanently lost: nova-lite-manage host retire %(host)s"
    )


class HostNotRetirable(Conflict):
    msg_fmt = "Host %(host)s cannot be retired: %(reason)s"


class AggregateNameExists(Conflict):
    msg_fmt = "Aggregate %(aggregate_name)s already exists."


class AggregateHostExists(Conflict):
    msg_fmt = "Aggregate %(aggregate_id)s already has host %(host)s."


class InvalidAggregateAction(Conflict):
    msg_fmt = "Cannot perform action '%(action)s' on aggregate %(aggregate_id)s. Reason: %(reason)s."


class ComputeHostUnavailable(ServiceUnavailable):
    msg_fmt = "Compute host %(host)s did not answer. Please try again."


class JoinTokenInvalid(Forbidden):
    """A token that does not exist, or a request that was not signed with it. Strangers learn no more."""

    msg_fmt = "The token is not valid."


class JoinRefused(Forbidden):
    """A request with a real token, which cannot be used for it."""

    msg_fmt = "%(reason)s"


class JoinedHostExists(Conflict):
    msg_fmt = (
        "The cloud has a host %(host)s already. Give this machine another name, or, if it takes that host's place, run "
        "on the controller: nova-lite-manage host remove %(host)s"
    )


class JoinTokenNotFound(NotFound):
    msg_fmt = "There is no token %(token_id)s."


class JoinedHostNotFound(NotFound):
    msg_fmt = "No host %(host)s has joined with a token."
