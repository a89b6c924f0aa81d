"""Errors of instances: states, locks, metadata, tags, and actions."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict, Forbidden, Invalid, NotFound


class PreserveEphemeralNotSupported(Invalid):
    msg_fmt = "The current driver does not support preserving ephemeral partitions."


class UnsupportedRescueImage(Invalid):
    msg_fmt = "Requested rescue image '%(image)s' is not supported"


class InstanceNotRescuable(Invalid):
    msg_fmt = "Instance %(instance_id)s cannot be rescued: %(reason)s"


class InstanceNotFound(NotFound):
    msg_fmt = "Instance %(instance_id)s could not be found."


class MetadataItemNotFound(NotFound):
    msg_fmt = "Metadata item was not found"


class TagNotFound(NotFound):
    msg_fmt = "Server %(instance_id)s has no tag '%(tag)s'"


class InstanceActionNotFound(NotFound):
    msg_fmt = "Action for request_id %(request_id)s on instance %(instance_id)s not found"


class InstanceInvalidState(Conflict):
    msg_fmt = "Cannot '%(method)s' instance %(instance_id)s while it is in %(attr)s %(state)s"


class UnshelveInstanceInvalidState(Conflict):
    msg_fmt = (
        "Specifying an availability zone or a host when unshelving server %(instance_uuid)s with status %(state)s is "
        "not supported. It must be shelved_offloaded."
    )


class InstanceIsLocked(Conflict):
    msg_fmt = "Instance %(instance_id)s is locked"


class PasswordAlreadySet(Conflict):
    msg_fmt = "Instance %(instance_id)s has posted a password already; its owner has to clear that first."


class GuestAgentNotEnabled(Conflict):
    msg_fmt = "QEMU guest agent is not enabled"


class HasPCIDevices(Conflict):
    """A suspend of a server with devices of its host."""

    msg_fmt = "Server %(instance_id)s has PCI devices of its host, so it cannot be suspended. Stop it, or shelve it."


class NoFreePort(Conflict):
    """A running guest whose machine has no place for another device."""

    msg_fmt = (
        "Server %(instance_id)s has no free port for another disk or interface while it runs. Detach one, or stop the "
        "server, attach the device, and start the server."
    )


class OperationNotSupportedForVTPM(Conflict):
    """An operation that would lose the state of the server's TPM. The text is Nova's."""

    msg_fmt = "Operation '%(operation)s' not supported for vTPM-enabled instance (%(instance_uuid)s)."


class OperationNotSupportedWithShares(Conflict):
    """An operation that virtiofs does not survive, as in Nova."""

    msg_fmt = "Operation '%(operation)s' is not supported for server %(instance_uuid)s, which has shares. Detach them."


class ShareNotFound(NotFound):
    msg_fmt = "Share %(share_id)s could not be found."


class ShareMappingAlreadyExists(Conflict):
    msg_fmt = "Share '%(share_id)s' or tag '%(tag)s' already associated to this server."


class SharesNotSupported(Forbidden):
    msg_fmt = "Shares are not supported by the host of this server: its operator has not set [libvirt] shares_path."


class PointNotFound(NotFound):
    msg_fmt = "Snapshot point %(point_id)s could not be found."


class PointAlreadyExists(Conflict):
    msg_fmt = "Server %(instance_id)s has a snapshot point '%(name)s' already."


class PointNotUsable(Conflict):
    msg_fmt = "The server cannot be reverted to snapshot point %(point_id)s: %(reason)s."


class PointsNotSupported(Conflict):
    msg_fmt = "Server %(instance_id)s cannot have snapshot points: %(reason)s."


class CloneNotSupported(Conflict):
    msg_fmt = "Server %(instance_id)s cannot be cloned: %(reason)s."


class TooManyPoints(Conflict):
    msg_fmt = "Server %(instance_id)s has %(most)d snapshot points, and cannot have more. Delete one."


class OperationNotSupportedWithPoints(Conflict):
    """An operation after which the server has another disk than that of its points."""

    msg_fmt = "Server %(instance_uuid)s has snapshot points, which '%(operation)s' would lose. Delete them."


class TPMKeyUnavailable(Conflict):
    """A key that is gone, that its master key does not fit, or that this host may not have."""

    msg_fmt = "The encryption key of the TPM of server %(instance_uuid)s is not available: %(reason)s"


class DiskKeyUnavailable(Conflict):
    """A key that is gone, that its master key does not fit, or that this host may not have."""

    msg_fmt = "The encryption key of the disk '%(role)s' of server %(instance_uuid)s is not available: %(reason)s"


class OperationNotSupportedForEncryptedDisk(Conflict):
    """An operation that would store a copy of an encrypted root disk as plain data."""

    msg_fmt = (
        "Operation '%(operation)s' is not supported for server %(instance_uuid)s: its root disk is encrypted, and the "
        "image would not be."
    )


class OperationNotSupportedForEncryptedMemory(Conflict):
    """An operation that would write or send memory, which only the processor of the host can decrypt, as in Nova."""

    msg_fmt = "Operation '%(operation)s' is not supported for server %(instance_uuid)s, whose memory is encrypted."


class InstanceNotReady(Conflict):
    msg_fmt = "Instance %(instance_id)s is not ready"
