"""Change of the administrator's password: does the guest have an agent, and whose password is it.

The password is in the action's payload until the action ends, and in the command to the host. If the host's report is
lost, the command is sent again, and sets the same password. If the host is lost, the old password stays.
"""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.objects.image import GUEST_AGENT

#: The administrator's account by the operating system of the image.
ADMINISTRATORS = {"windows": "Administrator"}


class ChangePasswordHandler(OperationHandler):
    """Requires a guest agent."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Keep ``admin_password`` of ``payload`` until the action is over, with the name of its account.

        Raises `GuestAgentNotEnabled` unless the image says that the guest has an agent.
        """
        properties = (instance.image or {}).get("properties", {})
        if not strutils.bool_from_string(properties.get(GUEST_AGENT)):
            raise exceptions.GuestAgentNotEnabled()
        user = properties.get("os_admin_user") or ADMINISTRATORS.get(str(properties.get("os_type")).lower(), "root")
        return {"user": user, "admin_password": payload["admin_password"]}
