"""Operation handlers by kind."""

from __future__ import annotations

from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations.clones import CloneHandler
from nova_lite.conductor.operations.create.handler import CreateHandler
from nova_lite.conductor.operations.delete import DeleteHandler, RestoreHandler
from nova_lite.conductor.operations.evacuate import EvacuateHandler
from nova_lite.conductor.operations.interfaces import AttachInterfaceHandler, DetachInterfaceHandler
from nova_lite.conductor.operations.live_migration import LiveMigrateHandler
from nova_lite.conductor.operations.lock import LockHandler, UnlockHandler
from nova_lite.conductor.operations.password import ChangePasswordHandler
from nova_lite.conductor.operations.points import CreatePointHandler, DeletePointHandler, RevertToPointHandler
from nova_lite.conductor.operations.power import RebootHandler, SuspendHandler
from nova_lite.conductor.operations.rebuild import RebuildHandler
from nova_lite.conductor.operations.rescue import RescueHandler
from nova_lite.conductor.operations.reset_state import ResetStateHandler
from nova_lite.conductor.operations.resize import (
    ConfirmResizeHandler,
    MigrateHandler,
    ResizeHandler,
    RevertResizeHandler,
)
from nova_lite.conductor.operations.shares import AttachShareHandler, DetachShareHandler
from nova_lite.conductor.operations.shelve import ShelveHandler, ShelveOffloadHandler, UnshelveHandler
from nova_lite.conductor.operations.snapshot import CreateImageHandler, SnapshotHandler
from nova_lite.conductor.operations.volumes import (
    AttachVolumeHandler,
    DetachVolumeHandler,
    SwapVolumeHandler,
    VolumeFilesHandler,
)

_HANDLERS: dict[str, OperationHandler] = {
    "create": CreateHandler(),
    "delete": DeleteHandler(),
    "evacuate": EvacuateHandler(),
    "lock": LockHandler(),
    "unlock": UnlockHandler(),
    "reboot": RebootHandler(),
    "suspend": SuspendHandler(),
    "rebuild": RebuildHandler(),
    "rescue": RescueHandler(),
    "changePassword": ChangePasswordHandler(),
    "restore": RestoreHandler(),
    "reset_state": ResetStateHandler(),
    "resize": ResizeHandler(),
    "migrate": MigrateHandler(),
    "confirmResize": ConfirmResizeHandler(),
    "revertResize": RevertResizeHandler(),
    "live-migration": LiveMigrateHandler(),
    "createImage": CreateImageHandler(),
    "createBackup": SnapshotHandler(),
    "shelve": ShelveHandler(),
    "shelveOffload": ShelveOffloadHandler(),
    "unshelve": UnshelveHandler(),
    "attach_volume": AttachVolumeHandler(),
    "detach_volume": DetachVolumeHandler(),
    "swap_volume": SwapVolumeHandler(),
    "volume_snapshot_create": VolumeFilesHandler(),
    "volume_snapshot_delete": VolumeFilesHandler(),
    "attach_interface": AttachInterfaceHandler(),
    "detach_interface": DetachInterfaceHandler(),
    "attach_share": AttachShareHandler(),
    "detach_share": DetachShareHandler(),
    "create_point": CreatePointHandler(),
    "delete_point": DeletePointHandler(),
    "revert_to_point": RevertToPointHandler(),
    "clone": CloneHandler(),
}
_DEFAULT = OperationHandler()


def handler_for(kind: str) -> OperationHandler:
    """Return the operation's handler; without one of its own, the base class, which only follows the definition."""
    return _HANDLERS.get(kind, _DEFAULT)
