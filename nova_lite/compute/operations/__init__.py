"""Handlers of commands on a host, found by the RPC method of the step (`nova_lite.operations`).

A module has the name of its operation, as in `nova_lite.conductor.operations`. A step whose definition names a driver
method needs no handler. A handler runs in one thread at a time per instance, and may run again after the daemon was
killed. It raises an error if it fails, and returns data that later steps need. `Builder` (``create``) is no
handler: builds have RPC methods of their own.

- `clones`: freezing of disks for clones
- `create`: a build on this host, from the command to the report
- `delete`: delete, soft delete and restore on the host
- `interfaces`: attaching and detaching of interfaces, and the binding of ports of another network service
- `live_migration`: live migration, at the source and at the destination
- `moves`: functions that cold and live migration share
- `password`: setting of the administrator's password in a guest
- `points`: snapshot points: create, delete, and revert
- `power`: stop, start and reboot on the host
- `rescue`: rescue and unrescue on the host
- `resize`: resize and cold migration, at the source and at the destination
- `shares`: attaching and detaching of shares
- `shelve`: shelve, offload and unshelve on the host
- `snapshot`: snapshots on the host: makes an image file of the guest's disk, uploads it, and removes it
- `volumes`: attaching, detaching, swapping and copying of volumes on the host, and work on their files
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import (
    clones,
    delete,
    interfaces,
    live_migration,
    password,
    points,
    power,
    rescue,
    resize,
    shares,
    shelve,
    snapshot,
    volumes,
)
from nova_lite.objects import ActionCommand

Handler = Callable[[LocalHost, ActionCommand], dict[str, Any] | None]

#: Commands after which the host reports the places of the guest's devices, and its processor.
PLACES_DEVICES = frozenset(
    {
        "attach_interface", "detach_interface", "rollback_attach_interface", "rollback_detach_interface",
        "attach_volume", "detach_volume", "rollback_attach_volume", "swap_volume", "start_instance",
        "reboot_instance", "rescue_instance", "unrescue_instance", "finish_resize", "finish_revert_resize",
        "check_can_live_migrate_source", "post_live_migration_at_destination",
    }
)  # fmt: skip

HANDLERS: dict[str, Handler] = {
    "terminate_instance": delete.terminate_instance,
    "snapshot_instance": snapshot.snapshot_instance,
    "backup_instance": snapshot.backup_instance,
    "backup_disk": snapshot.backup_disk,
    "shelve_instance": shelve.shelve_instance,
    "shelve_volume_backed_instance": shelve.shelve_volume_backed_instance,
    "shelve_offload_instance": shelve.shelve_offload_instance,
    "unshelve_instance": shelve.unshelve_instance,
    "stop_instance": power.stop_instance,
    "start_instance": power.start_instance,
    "reboot_instance": power.reboot_instance,
    "check_can_live_migrate_source": live_migration.check_can_live_migrate_source,
    "pre_live_migration": live_migration.pre_live_migration,
    "live_migration": live_migration.live_migration,
    "rollback_live_migration": live_migration.rollback_live_migration,
    "find_live_migrated_instance": live_migration.find_live_migrated_instance,
    "rollback_live_migration_at_destination": live_migration.rollback_live_migration_at_destination,
    "post_live_migration_at_destination": live_migration.post_live_migration_at_destination,
    "post_live_migration": live_migration.post_live_migration,
    "resize_instance": resize.resize_instance,
    "resize_instance_same_host": resize.resize_instance_same_host,
    "resize_in_place": resize.resize_in_place,
    "rollback_resize_in_place": resize.rollback_resize_in_place,
    "finish_resize": resize.finish_resize,
    "drop_resize": resize.drop_resize,
    "confirm_resize": resize.confirm_resize,
    "revert_resize": resize.revert_resize,
    "finish_revert_resize": resize.finish_revert_resize,
    "soft_delete_instance": delete.soft_delete_instance,
    "restore_instance": delete.restore_instance,
    "set_admin_password": password.set_admin_password,
    "rescue_instance": rescue.rescue_instance,
    "unrescue_instance": rescue.unrescue_instance,
    "attach_volume": volumes.attach_volume,
    "rollback_attach_volume": volumes.detach_volume,
    "detach_volume": volumes.detach_volume,
    "snapshot_volumes": volumes.snapshot_volumes,
    "swap_volume": volumes.swap_volume,
    "rollback_swap_volume": volumes.rollback_swap_volume,
    "volume_snapshot_create": volumes.volume_snapshot_create,
    "rollback_volume_snapshot_create": volumes.rollback_volume_snapshot_create,
    "volume_snapshot_delete": volumes.volume_snapshot_delete,
    "rollback_volume_snapshot_delete": volumes.rollback_volume_snapshot_delete,
    "attach_interface": interfaces.attach_interface,
    "rollback_attach_interface": interfaces.rollback_attach_interface,
    "detach_interface": interfaces.detach_interface,
    "rollback_detach_interface": interfaces.rollback_detach_interface,
    "attach_share": shares.attach_share,
    "rollback_attach_share": shares.detach_share,
    "detach_share": shares.detach_share,
    "create_point": points.create_point,
    "rollback_create_point": points.delete_point,
    "delete_point": points.delete_point,
    "revert_to_point": points.revert_to_point,
    "clone_instance": clones.clone_instance,
    "rollback_clone_instance": clones.rollback_clone_instance,
}
