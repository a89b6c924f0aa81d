"""Server groups."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import ServerGroup


def show(req: Request, group: ServerGroup) -> dict[str, Any]:
    view: dict[str, Any] = {"id": group.id, "name": group.name, "members": group.members}
    if req.has(Change.SERVER_GROUP_POLICY):
        view |= {"policy": group.policy, "rules": group.rules}
    else:
        view |= {"policies": [group.policy], "metadata": {}}
    if req.has(Change.SERVER_GROUP_OWNER):
        view |= {"project_id": group.project_id, "user_id": group.user_id}
    return view
