"""Errors of resizes, migrations, and evacuations."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict, Invalid, NotFound
from nova_lite.base.exceptions.hosts import ServiceInUse


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


class MigrationNotFound(NotFound):
    msg_fmt = "In-progress live migration %(migration_id)s is not found for server %(instance_id)s."


class MigrationNotFoundForInstance(NotFound):
    msg_fmt = "Migration %(migration_id)s not found for instance %(instance_id)s"


class BalancingIsOff(Conflict):
    msg_fmt = (
        "Hosts do not measure their load. Set [conductor] rebalance = dry_run for all conductors, and wait for "
        "[balance] window."
    )


class MoveRefused(Conflict):
    msg_fmt = "The server is not moved to relieve its host: %(reason)s."


class MigrationNotLive(NotFound):
    msg_fmt = "Migration %(migration_id)s for server %(instance_id)s is not live-migration."


class MigrationNotInProgress(NotFound):
    msg_fmt = "Live migration %(migration_id)s for server %(instance_id)s is not in progress."


class UnshelveHostNotInAZ(Conflict):
    msg_fmt = "Host %(host)s is not in the availability zone %(availability_zone)s."


class ServiceHasMigrations(ServiceInUse):
    msg_fmt = (
        "Unable to delete compute service that has in-progress migrations. "
        "Complete the migrations or delete the instances first."
    )


class SourceRetired(Conflict):
    msg_fmt = (
        "Instance %(instance_uuid)s cannot be reverted: host %(host)s, which has its former disk, is permanently lost. "
        "Confirm the resize."
    )


class SourceDown(Conflict):
    msg_fmt = (
        "Instance %(instance_uuid)s cannot be reverted now: host %(host)s, which has its former disk, is down. "
        "Wait until it is back, or confirm the resize."
    )
