"""Every error nova_lite raises on purpose.

::

    NovaLiteException (500)
    ├── Invalid (400)
    │   ├── ValidationError, InvalidInput, InvalidSortKey, MarkerNotFound
    │   ├── ImageUnacceptable, FlavorDiskTooSmall, FlavorMemoryTooSmall
    │   ├── AvailabilityZoneUnavailable, KeypairUnavailable, NetworkUnavailable, ...
    │   └── InvalidAPIVersionString
    ├── Forbidden (403)
    │   ├── PolicyNotAuthorized
    │   └── QuotaExceeded
    ├── NotFound (404): InstanceNotFound, FlavorNotFound, ImageNotFound, ...
    ├── Conflict (409): InstanceInvalidState, InstanceIsLocked, *Exists ...
    ├── InvalidGlobalAPIVersion (406), Gone (410)
    ├── ServiceUnavailable (503): DatabaseUnavailable, MessagingUnavailable, ComputeHostUnavailable, ...
    ├── NotImplementedByDriver, NotServed (501)
    └── internal to the control plane (500)
        ├── NoValidHost
        ├── StaleReport, InstanceGone, Fenced            (protocol answers)
        └── VirtDriverError and its children

An error knows its HTTP ``code``; `nova_lite.api.wsgi` turns it into a fault. Errors cross the message bus:
oslo.messaging re-creates them from ``args`` and ``kwargs``, so a subclass only declares ``msg_fmt`` and
``code``, and is raised with keywords that the format names.
"""

from __future__ import annotations

from typing import Any


class NovaLiteException(Exception):
    """Base error. ``code`` is the HTTP status, ``msg_fmt`` a %-format over the keyword arguments."""

    msg_fmt = "An unknown error occurred."
    code = 500

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        if message is None:
            message = self.msg_fmt % kwargs
        self.kwargs = kwargs
        super().__init__(message)

    @property
    def message(self) -> str:
        """The sentence for the reader, without a remote traceback that the bus may have appended."""
        return str(self.args[0]) if self.args else self.msg_fmt


# --- 400


class Invalid(NovaLiteException):
    msg_fmt = "The request is invalid."
    code = 400


class ValidationError(Invalid):
    msg_fmt = "%(detail)s"


class InvalidInput(Invalid):
    msg_fmt = "Invalid input received: %(reason)s"


class InvalidAPIVersionString(Invalid):
    msg_fmt = "API Version String %(version)s is of invalid format. Must be of format MajorNum.MinorNum."


class InvalidSortKey(Invalid):
    msg_fmt = "Sort key %(key)s is not valid. Valid keys are: %(valid)s."


class MarkerNotFound(Invalid):
    msg_fmt = "marker [%(marker)s] not found"


class ConsoleTypeInvalid(Invalid):
    msg_fmt = "Invalid console type %(console_type)s"


class ConsoleTypeUnavailable(Invalid):
    msg_fmt = "Unavailable console type %(console_type)s."


class ImageUnavailable(Invalid):
    msg_fmt = "Can not find requested image"


class ImageNotActive(Invalid):
    msg_fmt = "Image %(image_id)s is not active."


class UnsuitableHost(Invalid):
    """What is asked of a server can not be done on the host that it is on."""

    msg_fmt = "The server's host is not suitable. %(reason)s"


class InvalidVolume(Invalid):
    msg_fmt = "Invalid volume: %(reason)s"


class VolumeNotCreated(Invalid):
    msg_fmt = "The volume of this server was not created: %(reason)s"


class InvalidSnapshot(Invalid):
    msg_fmt = "Invalid snapshot: %(reason)s"


class InvalidBDM(Invalid):
    """A wrong block device mapping."""

    msg_fmt = "Block Device Mapping is Invalid: %(reason)s"


class VolumeBacked(Invalid):
    """What is asked for is done to a local root disk, and the server boots from a volume."""

    msg_fmt = "%(what)s is not possible for a volume-backed server. %(instead)s"


class FixedIpNotFoundForInstance(Invalid):
    msg_fmt = "Instance %(instance_uuid)s does not have fixed IP '%(ip)s'."


class BackupOfVolumes(Invalid):
    msg_fmt = "Backup is not supported for volume-backed instances."


class PreserveEphemeralNotSupported(Invalid):
    msg_fmt = "The current driver does not support preserving ephemeral partitions."


class UnsupportedRescueImage(Invalid):
    msg_fmt = "Requested rescue image '%(image)s' is not supported"


class InstanceNotRescuable(Invalid):
    msg_fmt = "Instance %(instance_id)s cannot be rescued: %(reason)s"


class ImageUnacceptable(Invalid):
    """The image itself is at fault: no host can boot it."""

    msg_fmt = "Image %(image_id)s is unacceptable: %(reason)s"


class QuotaBelowUse(Invalid):
    msg_fmt = "Quota limit %(limit)s for %(resource)s must be greater than or equal to already used %(used)s."


class QuotaAboveProject(Invalid):
    """A user's limit is above that of the project."""

    msg_fmt = "Quota limit %(limit)s for %(resource)s must be less than or equal to %(maximum)s."


class FlavorUnavailable(Invalid):
    """A flavor named in a request body does not exist (a flavor named in a URL is `FlavorNotFound`)."""

    msg_fmt = "Flavor %(flavor_id)s could not be found."


class FlavorDiskTooSmall(Invalid):
    msg_fmt = (
        "Flavor's disk is too small for requested image. Flavor disk is %(flavor_size)i GiB, "
        "image needs %(image_min_disk)i GiB."
    )


class FlavorMemoryTooSmall(Invalid):
    msg_fmt = (
        "Flavor's memory is too small for requested image. Flavor has %(flavor_mb)i MiB, image needs %(image_mb)i MiB."
    )


class HardwareRefused(Invalid):
    """What a flavor or an image says of a guest's hardware cannot be had, or makes no sense."""

    msg_fmt = "%(reason)s"


class TagLimitExceeded(Invalid):
    msg_fmt = "The number of tags exceeded the per-server limit %(allowed)d"


class KeypairUnavailable(Invalid):
    msg_fmt = "Invalid key_name provided."


class InvalidKeypair(Invalid):
    msg_fmt = "Keypair data is invalid: %(reason)s"


class NetworkUnavailable(Invalid):
    msg_fmt = "Network %(network_id)s could not be found."


class NetworkRequiresSubnet(Invalid):
    msg_fmt = "Network %(network_id)s requires a subnet in order to boot instances on."


class PortUnavailable(Invalid):
    """Where a port that there is not, or that is another project's, is asked for."""

    msg_fmt = "Port %(port_id)s could not be found."


class NetworkAmbiguous(Invalid):
    msg_fmt = "Multiple possible networks found, use a Network ID to be more specific."


class PortRequiresFixedIP(Invalid):
    msg_fmt = "Port %(port_id)s requires a FixedIP in order to be used."


class SecurityGroupUnavailable(Invalid):
    msg_fmt = "Unable to find security_group with name or id %(name)s"


class SecurityGroupExists(Invalid):
    msg_fmt = "Security group %(name)s already exists for project %(project_id)s."


class SecurityGroupInUse(Invalid):
    msg_fmt = "Security group %(name)s is in use: %(by)s."


class SecurityGroupFixed(Invalid):
    msg_fmt = "The default security group can be neither renamed nor deleted."


class SecurityGroupRuleExists(Invalid):
    msg_fmt = "This rule already exists in group %(group_id)s."


class SecurityGroupRuleInvalid(Invalid):
    msg_fmt = "%(reason)s"


class FixedIpInUse(Invalid):
    msg_fmt = "Fixed IP address %(address)s is already in use on network %(network_id)s."


class FixedIpInvalid(Invalid):
    msg_fmt = "Fixed IP %(address)s is not a valid ip address for network %(network_id)s."


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


class InvalidMigrationState(Invalid):
    msg_fmt = (
        "Migration %(migration_id)s state of instance %(instance_uuid)s is %(state)s. Cannot %(method)s while the "
        "migration is in this state."
    )


class MigrationNotThere(Invalid):
    msg_fmt = "Migration %(migration_id)s not found for instance %(instance_id)s"


class UnableToMigrateToSelf(Invalid):
    msg_fmt = "Unable to migrate instance (%(instance_id)s) to current host (%(host)s)."


class CannotResizeToSameFlavor(Invalid):
    msg_fmt = "When resizing, instances must change flavor!"


class CannotResizeDisk(Invalid):
    msg_fmt = "Server disk was unable to be resized because: %(reason)s"


class CannotMigrateToSameHost(Invalid):
    msg_fmt = "Cannot migrate to the host where the server exists."


class NotResized(Invalid):
    msg_fmt = "Instance has not been resized."


class EvacuateToSameHost(Invalid):
    msg_fmt = "A server cannot be evacuated to %(host)s, the host that it is on."


# --- 401, 403


class Unauthorized(NovaLiteException):
    msg_fmt = "The request you have made requires authentication."
    code = 401


class ConsoleTypeNotShown(Unauthorized):
    msg_fmt = "The requested console type details are not accessible"


class TooManyFailures(Unauthorized):
    """Of one who guesses passwords: none is looked at for some seconds."""

    msg_fmt = "Too many passwords were wrong. Please try again in %(seconds)d seconds."
    code = 429


class TooManyRequests(NovaLiteException):
    msg_fmt = "These are more than %(limit)d requests within a minute."
    code = 429


class Forbidden(NovaLiteException):
    msg_fmt = "You are not authorized to do this."
    code = 403


class PolicyNotAuthorized(Forbidden):
    msg_fmt = "Policy doesn't allow %(action)s to be performed."


class ExternalNetworkForbidden(Forbidden):
    msg_fmt = "It is not allowed to create an interface on external network %(network_id)s"


class PortLimitExceeded(Forbidden):
    msg_fmt = "Maximum number of ports exceeded"


class QuotaExceeded(Forbidden):
    msg_fmt = (
        "Quota exceeded for %(overs)s: Requested %(requested)s, but already used %(used)s of %(allowed)s %(overs)s"
    )


class BootFromVolumeRequiredForZeroDiskFlavor(Forbidden):
    msg_fmt = "Only volume-backed servers are allowed for flavors with zero disk."


class VolumeQuotaExceeded(NovaLiteException):
    """Cinder's status for it is 413."""

    code = 413
    msg_fmt = "Quota exceeded for %(name)s: requested %(requested)s, %(used)s of %(allowed)s are used."


class ImageQuotaExceeded(Forbidden):
    """As Glance answers it."""

    code = 413
    msg_fmt = "The limit of the project's images is reached: %(allowed)s %(unit)s, of which %(used)s are used."


class MetadataLimitExceeded(Forbidden):
    msg_fmt = "Maximum number of metadata items exceeds %(allowed)d"


class InjectedFileLimitExceeded(Forbidden):
    msg_fmt = "%(reason)s"


class KeypairLimitExceeded(Forbidden):
    msg_fmt = "Maximum number of key pairs exceeded"


# --- 404


class NotFound(NovaLiteException):
    msg_fmt = "Resource could not be found."
    code = 404


class VolumeNotFound(NotFound):
    msg_fmt = "Volume %(volume_id)s could not be found."


class SnapshotNotFound(NotFound):
    msg_fmt = "Snapshot %(snapshot_id)s could not be found."


class VolumeBDMNotFound(NotFound):
    msg_fmt = "Instance %(instance_uuid)s is not attached to volume %(volume_id)s"


class InstanceNotFound(NotFound):
    msg_fmt = "Instance %(instance_id)s could not be found."


class ConsoleTokenNotFound(NotFound):
    msg_fmt = "Token not found"


class MetadataItemNotFound(NotFound):
    msg_fmt = "Metadata item was not found"


class TagNotFound(NotFound):
    msg_fmt = "Server %(instance_id)s has no tag '%(tag)s'"


class FlavorNotFound(NotFound):
    msg_fmt = "Flavor %(flavor_id)s could not be found."


class FlavorExtraSpecNotFound(NotFound):
    msg_fmt = "Flavor %(flavor_id)s has no extra specs with key %(key)s."


class FlavorAccessNotKept(NotFound):
    msg_fmt = "Access list not available for public flavors."


class FlavorAccessNotFound(NotFound):
    msg_fmt = "Flavor access not found for %(flavor_id)s / %(project_id)s combination."


class ImageNotFound(NotFound):
    msg_fmt = "Image %(image_id)s could not be found."


class KeypairNotFound(NotFound):
    msg_fmt = "Keypair %(name)s not found for user %(user_id)s"


class FloatingIpNotFound(NotFound):
    msg_fmt = "Floating IP %(reference)s could not be found."


class FloatingIpPoolNotFound(NotFound):
    msg_fmt = "Floating IP pool %(pool)s not found."


class NoMoreFloatingIps(NotFound):
    msg_fmt = "No more floating IPs in pool %(pool)s."


class NoSuchPort(NotFound):
    msg_fmt = "Port %(port_id)s could not be found."


class SubnetNotFound(NotFound):
    msg_fmt = "Subnet %(subnet_id)s could not be found."


class PortNotFound(NotFound):
    msg_fmt = "Instance %(instance_id)s does not have a port with id %(port_id)s"


class SecurityGroupNotFound(NotFound):
    msg_fmt = "Security group %(group_id)s not found."


class SecurityGroupRuleNotFound(NotFound):
    msg_fmt = "Security group rule %(rule_id)s not found."


class SecurityGroupNotAssociated(NotFound):
    msg_fmt = "Security group %(name)s is not associated with the instance %(instance_id)s"


class NetworkNotFound(NotFound):
    msg_fmt = "Network %(network_id)s could not be found."


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


class MigrationNotFound(NotFound):
    msg_fmt = "In-progress live migration %(migration_id)s is not found for server %(instance_id)s."


class MigrationNotFoundForInstance(NotFound):
    msg_fmt = "Migration %(migration_id)s not found for instance %(instance_id)s"


class MigrationNotLive(NotFound):
    msg_fmt = "Migration %(migration_id)s for server %(instance_id)s is not live-migration."


class MigrationNotInProgress(NotFound):
    msg_fmt = "Live migration %(migration_id)s for server %(instance_id)s is not in progress."


class InstanceActionNotFound(NotFound):
    msg_fmt = "Action for request_id %(request_id)s on instance %(instance_id)s not found"


class AggregateNotFound(NotFound):
    msg_fmt = "Aggregate %(aggregate_id)s could not be found."


class AggregateHostNotFound(NotFound):
    msg_fmt = "Aggregate %(aggregate_id)s has no host %(host)s."


class ServerGroupNotFound(NotFound):
    msg_fmt = "Instance group %(group_uuid)s could not be found."


# --- 406, 409, 422


class InvalidGlobalAPIVersion(NovaLiteException):
    msg_fmt = "Version %(req_ver)s is not supported by the API. Minimum is %(min_ver)s and maximum is %(max_ver)s."
    code = 406


class Conflict(NovaLiteException):
    msg_fmt = "The resource is in use or in the wrong state."
    code = 409


class InstanceInvalidState(Conflict):
    msg_fmt = "Cannot '%(method)s' instance %(instance_id)s while it is in %(attr)s %(state)s"


class IdempotencyKeyReused(NovaLiteException):
    msg_fmt = (
        "The Idempotency-Key of this request came before, with another request: repeat that one as it was, or take a "
        "new key for a new server."
    )
    code = 422


class UnshelveInstanceInvalidState(Conflict):
    msg_fmt = (
        "Specifying an availability zone or a host when unshelving server %(instance_uuid)s with status %(state)s is "
        "not supported. It must be shelved_offloaded."
    )


class UnshelveHostNotInAZ(Conflict):
    msg_fmt = "Host %(host)s is not in the availability zone %(availability_zone)s."


class InstanceIsLocked(Conflict):
    msg_fmt = "Instance %(instance_id)s is locked"


class PasswordAlreadySet(Conflict):
    msg_fmt = "Instance %(instance_id)s has posted a password already; its owner has to clear that first."


class GuestAgentNotEnabled(Conflict):
    msg_fmt = "QEMU guest agent is not enabled"


class InstanceNotReady(Conflict):
    msg_fmt = "Instance %(instance_id)s is not ready"


class FlavorExists(Conflict):
    msg_fmt = "Flavor with %(attr)s %(value)s already exists."


class FlavorIsPublic(Conflict):
    msg_fmt = "Can not add access to a public flavor."


class FlavorAccessExists(Conflict):
    msg_fmt = "Flavor access already exists for flavor %(flavor_id)s and project %(project_id)s combination."


class KeypairExists(Conflict):
    msg_fmt = "Key pair '%(name)s' already exists."


class ImageExists(Conflict):
    msg_fmt = "Image %(image_id)s already exists."


class ImageStatusConflict(Conflict):
    msg_fmt = "Image %(image_id)s is %(status)s, where it has to be %(expected)s."


class NetworkExists(Conflict):
    msg_fmt = "Network %(name)s already exists."


class FloatingIpNotAssociated(Conflict):
    msg_fmt = "Floating IP %(address)s is not associated with instance %(instance_id)s."


class NetworkInUse(Conflict):
    msg_fmt = "Network %(name)s still has addresses in use."


class PortInUse(Conflict):
    msg_fmt = "Port %(port_id)s is still in use."


class MacAddressInUse(Conflict):
    msg_fmt = "MAC address %(mac_address)s is in use."


class FloatingIpPortTaken(Conflict):
    msg_fmt = "Cannot associate floating IP %(address)s with port %(port_id)s: %(other)s leads there already."


class ServiceInUse(Conflict):
    msg_fmt = "Service %(service_id)s cannot be deleted: %(reason)s"


class ServiceHostsInstances(ServiceInUse):
    msg_fmt = "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."


class ServiceHasMigrations(ServiceInUse):
    msg_fmt = (
        "Unable to delete compute service that has in-progress migrations. "
        "Complete the migrations or delete the instances first."
    )


class ServiceHasCleanups(ServiceInUse):
    msg_fmt = (
        "Unable to delete compute service that has still to remove what was deleted on host %(host)s. Start it there, "
        "or, if the host is gone for good: nova-lite-manage host retire %(host)s"
    )


class SourceRetired(Conflict):
    msg_fmt = (
        "Instance %(instance_uuid)s cannot be reverted: host %(host)s, which has its former disk, is gone for good. "
        "Confirm the resize."
    )


class SourceDown(Conflict):
    msg_fmt = (
        "Instance %(instance_uuid)s cannot be reverted now: host %(host)s, which has its former disk, is down. "
        "Wait until it is back, or confirm the resize."
    )


class HostNotRetirable(Conflict):
    msg_fmt = "Host %(host)s cannot be retired: %(reason)s"


class AggregateNameExists(Conflict):
    msg_fmt = "Aggregate %(aggregate_name)s already exists."


class AggregateHostExists(Conflict):
    msg_fmt = "Aggregate %(aggregate_id)s already has host %(host)s."


class InvalidAggregateAction(Conflict):
    msg_fmt = "Cannot perform action '%(action)s' on aggregate %(aggregate_id)s. Reason: %(reason)s."


class SecurityGroupAmbiguous(Conflict):
    msg_fmt = "Multiple security groups found matching '%(name)s'. Use an ID to be more specific."


class NoMoreFixedIps(Conflict):
    msg_fmt = "No fixed IP addresses are left on network %(network_id)s."


# --- 410


class Gone(NovaLiteException):
    msg_fmt = "This resource is no longer available. No forwarding address is given."
    code = 410


# --- 501, 503


class NotImplementedByDriver(NovaLiteException):
    msg_fmt = "The virtualization driver does not support %(operation)s."
    code = 501


class NotServed(NovaLiteException):
    """A part of the compute API that is known, but that this cloud does not have. ``instead``: what to do, a sentence
    with a space before it, or nothing."""

    msg_fmt = "%(what)s is not supported by this cloud.%(instead)s"
    code = 501

    def __init__(self, message: str | None = None, *, instead: str = "", **kwargs: Any) -> None:
        super().__init__(message, instead=instead, **kwargs)


class ServiceUnavailable(NovaLiteException):
    msg_fmt = "The service is unavailable for the moment. Please try again."
    code = 503


class DatabaseUnavailable(ServiceUnavailable):
    msg_fmt = "The database is unavailable for the moment. Nothing was changed; please try again."


class MessagingUnavailable(ServiceUnavailable):
    msg_fmt = "The control plane did not answer (%(what)s). Please try again."


class MessageRefused(ServiceUnavailable):
    """Not signed as it has to be, or by one who may not ask that. For operators: `nova_lite.rpc.Transport` logs it."""

    msg_fmt = "%(topic)s on %(server)s refuses message %(method)s: %(why)s."


class ServiceTooOld(ServiceUnavailable):
    """A daemon of an earlier version, or pinned to one, does not know what it is asked."""

    msg_fmt = (
        "The %(service)s service%(where)s is too old for %(method)s: it speaks %(spoken)s, %(needed)s is needed; "
        "upgrade it."
    )


class ComputeHostUnavailable(ServiceUnavailable):
    msg_fmt = "Compute host %(host)s did not answer. Please try again."


class ImageServiceUnavailable(ServiceUnavailable):
    msg_fmt = "The image service did not answer. Please try again."


class VolumeServiceUnavailable(ServiceUnavailable):
    msg_fmt = "The volume service did not answer. Please try again."


class VolumeNotReady(ServiceUnavailable):
    """It is still being made, or somebody else is at it just now."""

    msg_fmt = "Volume %(volume_id)s is not ready yet. Please try again."


class NetworkServiceUnavailable(ServiceUnavailable):
    msg_fmt = "The network service did not answer. Please try again."


class HostNotAdmitted(ServiceUnavailable):
    """The host has to register, as soon as it may, and to compare its domains before it serves."""


class HostForcedDown(HostNotAdmitted):
    msg_fmt = "Host %(host)s is forced down; it may serve again when an operator takes that back."


class HostIsAnother(HostNotAdmitted):
    msg_fmt = (
        "Host %(host)s is registered as another machine, or this one has lost its state directory. If the other one "
        "runs nothing any more, force the host down and take that back: then this one may serve."
    )


class HostEpochOver(HostNotAdmitted):
    msg_fmt = "The registration of host %(host)s does not hold any more; it has to register anew."


class HeartbeatIsOld(ServiceUnavailable):
    msg_fmt = "Host %(host)s has sent a newer heartbeat, which was taken before: this one says nothing any more."


# --- scheduling and the protocol between conductor and compute


class NoValidHost(NovaLiteException):
    """No host fits. ``reason`` says how many hosts each filter took out; ``details`` the same for machines."""

    msg_fmt = "No valid host was found. %(reason)s"


class SchedulerNotReady(ServiceUnavailable):
    msg_fmt = "The scheduler has not yet loaded its host states."


class StaleReport(NovaLiteException):
    """A compute host reported on an attempt that is no longer the current one: drop the work, destroy its traces."""

    msg_fmt = "Instance %(instance_id)s: generation %(generation)s on host %(host)s is not current any more."


class ActionOver(NovaLiteException):
    """What a host works at was overtaken by a later order, or given up: it stops, and leaves nothing."""

    msg_fmt = "The %(action)s of instance %(instance_id)s is over, something else was asked for meanwhile."


class InstanceGone(NovaLiteException):
    """The instance was deleted, or is being deleted, while something was done for it."""

    msg_fmt = "Instance %(instance_id)s disappeared or is being deleted."


class ComputeResourcesUnavailable(NovaLiteException):
    msg_fmt = "Insufficient compute resources: %(reason)s."


class Fenced(NovaLiteException):
    """This host promised never to build the instance at this generation or a lower one."""

    msg_fmt = "Instance %(instance_uuid)s is fenced at generation %(generation)s on this host."


# --- virt


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


class VolumeFileMissing(VirtDriverError):
    msg_fmt = "The data of volume %(volume_id)s is not there."


class HypervisorUnavailable(VirtDriverError):
    msg_fmt = "Connection to the hypervisor is broken on host %(host)s: %(reason)s"


class DomainNotFound(VirtDriverError):
    msg_fmt = "Instance %(instance_uuid)s has no domain on this host."


class DomainHeld(VirtDriverError):
    msg_fmt = "Instance %(instance_uuid)s is being moved to another host; its guest may not run on this one."


class MigrationPreCheckError(VirtDriverError):
    msg_fmt = "Migration pre-check error: %(reason)s"


class MigrationFailed(VirtDriverError):
    msg_fmt = "Live migration of instance %(instance_uuid)s failed: %(reason)s"


class MigrationAborted(VirtDriverError):
    msg_fmt = "Live migration of instance %(instance_uuid)s was aborted: %(reason)s"


class ImageFileMissing(VirtDriverError):
    """Its file is not here: the store may be away on this host alone."""

    msg_fmt = "Image %(image_id)s cannot be read on this host: %(reason)s"


class ImageGone(ImageFileMissing):
    """It is nowhere: no host can boot it."""

    msg_fmt = "Image %(image_id)s cannot be had: %(reason)s"


class ImageCorrupt(VirtDriverError):
    """What this host read is not what was registered: its disk or the way to it may be at fault."""

    msg_fmt = "Image %(image_id)s is corrupt: %(reason)s"


class ImageDownloadFailed(VirtDriverError):
    """Not the image's fault: another host, or a later attempt, may do better."""

    msg_fmt = "Image %(image_id)s could not be downloaded: %(reason)s"


class ImageUploadFailed(VirtDriverError):
    msg_fmt = "Image %(image_id)s could not be uploaded: %(reason)s"


class InstancePowerOnFailure(VirtDriverError):
    msg_fmt = "Failed to power on instance %(instance_uuid)s: %(reason)s"


class GuestAgentUnresponsive(VirtDriverError):
    msg_fmt = "The guest agent of instance %(instance_uuid)s does not answer."


class ConfigDriveInvalid(VirtDriverError):
    msg_fmt = "The config drive could not be made: %(reason)s"


class ConfigurationError(NovaLiteException):
    """An operator's mistake; daemons print the message in one line and exit with status 1."""

    msg_fmt = "%(reason)s"
