"""The classes of operations that need more than their row, by kind."""

from __future__ import annotations

from nova_lite.conductor.operations.delete import Delete, Restore
from nova_lite.conductor.operations.evacuate import Evacuate
from nova_lite.conductor.operations.handler import Own
from nova_lite.conductor.operations.interfaces import AttachInterface, DetachInterface
from nova_lite.conductor.operations.live_migration import LiveMigrate
from nova_lite.conductor.operations.lock import Lock, Unlock
from nova_lite.conductor.operations.password import ChangePassword
from nova_lite.conductor.operations.power import Reboot
from nova_lite.conductor.operations.rebuild import Rebuild
from nova_lite.conductor.operations.rescue import Rescue
from nova_lite.conductor.operations.reset_state import ResetState
from nova_lite.conductor.operations.resize import ConfirmResize, Migrate, Resize, RevertResize
from nova_lite.conductor.operations.shelve import Shelve, ShelveOffload, Unshelve
from nova_lite.conductor.operations.snapshot import CreateImage, Snapshot
from nova_lite.conductor.operations.volumes import AttachVolume, DetachVolume, SwapVolume

_OWN: dict[str, Own] = {
    "delete": Delete(),
    "evacuate": Evacuate(),
    "lock": Lock(),
    "unlock": Unlock(),
    "reboot": Reboot(),
    "rebuild": Rebuild(),
    "rescue": Rescue(),
    "changePassword": ChangePassword(),
    "restore": Restore(),
    "reset_state": ResetState(),
    "resize": Resize(),
    "migrate": Migrate(),
    "confirmResize": ConfirmResize(),
    "revertResize": RevertResize(),
    "live-migration": LiveMigrate(),
    "createImage": CreateImage(),
    "createBackup": Snapshot(),
    "shelve": Shelve(),
    "shelveOffload": ShelveOffload(),
    "unshelve": Unshelve(),
    "attach_volume": AttachVolume(),
    "detach_volume": DetachVolume(),
    "swap_volume": SwapVolume(),
    "attach_interface": AttachInterface(),
    "detach_interface": DetachInterface(),
}
_NOTHING = Own()


def own(kind: str) -> Own:
    return _OWN.get(kind, _NOTHING)
