"""Accepting a change of password: whether the guest has an agent that can do it, and whose password it is."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.objects.image import GUEST_AGENT

#: The account whose password it is, by the operating system that the image names.
ADMINISTRATORS = {"windows": "Administrator"}


class ChangePasswordHandler(OperationHandler):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``admin_password``, which the row has until the action is over. Raises
        `GuestAgentNotEnabled` unless the image says that there is an agent."""
        properties = (instance.image or {}).get("properties", {})
        if not strutils.bool_from_string(properties.get(GUEST_AGENT)):
            raise exceptions.GuestAgentNotEnabled()
        user = properties.get("os_admin_user") or ADMINISTRATORS.get(str(properties.get("os_type")).lower(), "root")
        return {"user": user, "admin_password": payload["admin_password"]}
