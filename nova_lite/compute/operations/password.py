"""Setting of the administrator's password in a guest."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand
from nova_lite.virt.driver import SettingPasswords


def set_admin_password(host: LocalHost, command: ActionCommand) -> None:
    """Set the password ``admin_password`` of ``user``, both of the payload."""
    host.require_domain(command)
    if not isinstance(host.driver, SettingPasswords):
        raise exceptions.NotImplementedByDriver(operation="setting passwords")
    host.driver.set_admin_password(command.instance.uuid, command.payload["user"], command.payload["admin_password"])
