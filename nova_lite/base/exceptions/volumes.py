"""Errors of volumes, snapshots, and block device mappings."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict, Forbidden, Invalid, NotFound, NovaLiteException, ServiceUnavailable


class InvalidVolume(Invalid):
    msg_fmt = "Invalid volume: %(reason)s"


class MultiattachOldMicroversion(Invalid):
    msg_fmt = "Multiattach volumes are only supported starting with compute API version 2.60."


class MultiattachToShelved(Invalid):
    msg_fmt = "Attaching multiattach volumes is not supported for shelved-offloaded instances."


class MultiattachNotSupported(Conflict):
    """A volume for several servers, at a host that cannot open it so."""

    msg_fmt = "Volume %(volume_id)s has 'multiattach' set, which is not supported for this instance."


class MultiattachSwap(Invalid):
    msg_fmt = (
        "Swapping multi-attach volumes is not supported, because another server may write to them meanwhile. Give the "
        "volume a type without multiattach first."
    )


class MultiattachReimage(Conflict):
    msg_fmt = (
        "Cannot re-image a volume that may be attached to more than one server. Give volume %(volume_id)s a type "
        "without multiattach first."
    )


class VolumeBDMIsMultiAttach(Invalid):
    msg_fmt = "Block Device Mapping %(volume_id)s is a multi-attach volume and is not valid for this operation."


class VolumeNotCreated(Invalid):
    msg_fmt = "The volume of this server was not created: %(reason)s"


class InvalidSnapshot(Invalid):
    msg_fmt = "Invalid snapshot: %(reason)s"


class InvalidBDM(Invalid):
    """An invalid block device mapping."""

    msg_fmt = "Block Device Mapping is Invalid: %(reason)s"


class VolumeBacked(Invalid):
    """A request that needs a local root disk, for a server that boots from a volume."""

    msg_fmt = "%(what)s is not possible for a volume-backed server. %(instead)s"


class BackupOfVolumes(Invalid):
    msg_fmt = "Backup is not supported for volume-backed instances."


class BootFromVolumeRequiredForZeroDiskFlavor(Forbidden):
    msg_fmt = "Only volume-backed servers are allowed for flavors with zero disk."


class VolumeQuotaExceeded(NovaLiteException):
    """A volume quota that is exceeded. Has the status that Cinder returns."""

    code = 413
    msg_fmt = "Quota exceeded for %(name)s: requested %(requested)s, %(used)s of %(allowed)s are used."


class VolumeTypeNotFound(NotFound):
    msg_fmt = "Volume type %(type)s could not be found."


class VolumeTypeExists(Conflict):
    msg_fmt = "Volume Type %(type)s already exists."


class VolumeTransferNotFound(NotFound):
    msg_fmt = "Transfer %(transfer_id)s could not be found."


class VolumeNotFound(NotFound):
    msg_fmt = "Volume %(volume_id)s could not be found."


class SnapshotNotFound(NotFound):
    msg_fmt = "Snapshot %(snapshot_id)s could not be found."


class VolumeBDMNotFound(NotFound):
    msg_fmt = "Instance %(instance_uuid)s is not attached to volume %(volume_id)s"


class VolumeServiceUnavailable(ServiceUnavailable):
    msg_fmt = "The volume service did not answer. Please try again."


class VolumeKeyUnavailable(Conflict):
    """A key that is gone, that its master key does not fit, or that this host may not have."""

    msg_fmt = "The encryption key of volume %(volume_id)s is not available: %(reason)s"


class MasterKeysUnreadable(ServiceUnavailable):
    msg_fmt = "The keys of encrypted volumes cannot be read just now. The log of the conductor says why."


class VolumeNotReady(ServiceUnavailable):
    """A volume that is still being made, or that another request is changing."""

    msg_fmt = "Volume %(volume_id)s is not ready yet. Please try again."
