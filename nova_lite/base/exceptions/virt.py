"""Errors of hypervisors, guests, and image files on a compute host."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Invalid, NovaLiteException


class PortBindingFailed(NovaLiteException):
    msg_fmt = (
        "Binding failed for port %(port_id)s on host %(host)s (%(vif_type)s): the network service has no agent there "
        "that can connect it."
    )


class VirtualInterfaceCreateException(Invalid):
    msg_fmt = "The network service did not connect the interfaces of instance %(instance_id)s within %(seconds)s s."


class VirtDriverError(NovaLiteException):
    msg_fmt = "The virtualization driver failed: %(reason)s"


class DeviceDetachFailed(VirtDriverError):
    msg_fmt = "Device detach failed for %(device)s: %(reason)s"


class GuestSizeRefused(VirtDriverError):
    msg_fmt = "The guest of instance %(instance_uuid)s keeps its size: %(reason)s"


class VolumeFileMissing(VirtDriverError):
    msg_fmt = "The data of volume %(volume_id)s is not there."


class VolumeNotInFiles(VirtDriverError):
    """A volume that the guest lacks, or that is in no plain files of Cinder's."""

    msg_fmt = "Volume %(volume_id)s is not in plain files of this guest: %(reason)s"


class BackupDamaged(VirtDriverError):
    msg_fmt = "Backup %(backup_id)s cannot be read: %(reason)s."


class HypervisorUnavailable(VirtDriverError):
    msg_fmt = "Connection to the hypervisor is broken on host %(host)s: %(reason)s"


class DomainNotFound(VirtDriverError):
    msg_fmt = "Instance %(instance_uuid)s has no domain on this host."


class DomainHeld(VirtDriverError):
    msg_fmt = "Instance %(instance_uuid)s is being moved to another host; its guest must not run on this one."


class DiskInUse(VirtDriverError):
    """A disk that another process has open, perhaps at another host. A second guest would damage it."""

    msg_fmt = (
        "Instance %(instance_uuid)s is not started: another process has its disk %(disk)s open, on this host or on "
        "another one."
    )


class DisksNotHere(VirtDriverError):
    """Disks of an evacuated server that the target was to find, and does not see."""

    msg_fmt = "The disks of instance %(instance_uuid)s are not in this host's directory: %(reason)s"


class MigrationPreCheckError(VirtDriverError):
    msg_fmt = "Migration pre-check error: %(reason)s"


class MigrationFailed(VirtDriverError):
    msg_fmt = "Live migration of instance %(instance_uuid)s failed: %(reason)s"


class MigrationAborted(VirtDriverError):
    msg_fmt = "Live migration of instance %(instance_uuid)s was aborted: %(reason)s"


class ImageFileMissing(VirtDriverError):
    """An image whose file is not on this host. The store may be unavailable on this host alone."""

    msg_fmt = "Image %(image_id)s cannot be read on this host: %(reason)s"


class ImageGone(ImageFileMissing):
    """An image whose file is nowhere. No host can boot it."""

    msg_fmt = "Image %(image_id)s is not available on any host: %(reason)s"


class ImageCorrupt(VirtDriverError):
    """An image whose data differ from its checksum. This host's disk or network may be at fault."""

    msg_fmt = "Image %(image_id)s is corrupt: %(reason)s"


class ImageDownloadFailed(VirtDriverError):
    """A failed download. Another host or a later attempt may succeed."""

    msg_fmt = "Image %(image_id)s could not be downloaded: %(reason)s"


class ImageUploadFailed(VirtDriverError):
    msg_fmt = "Image %(image_id)s could not be uploaded: %(reason)s"


class InstancePowerOnFailure(VirtDriverError):
    msg_fmt = "Failed to power on instance %(instance_uuid)s: %(reason)s"


class GuestAgentUnresponsive(VirtDriverError):
    msg_fmt = "The guest agent of instance %(instance_uuid)s does not answer."


class ConfigDriveInvalid(VirtDriverError):
    msg_fmt = "The config drive could not be made: %(reason)s"
