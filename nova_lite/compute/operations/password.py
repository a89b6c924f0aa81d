"""Setting of the administrator's password in a guest."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand


def set_admin_password(host: LocalHost, command: ActionCommand) -> None:
    """Set the password ``admin_password`` of ``user``, both of the payload."""
    host.require_domain(command)
    host.driver.passwords.set(command.instance.uuid, command.payload["user"], command.payload["admin_password"])
