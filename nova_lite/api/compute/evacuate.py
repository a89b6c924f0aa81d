"""The server action ``evacuate``: rebuilds a server of a failed host on another host."""

from __future__ import annotations

from oslo_utils import strutils

from nova_lite import operations
from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import server_password
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.base import exceptions
from nova_lite.policies import servers as policies

# --- schemas

_EVACUATE_214: t.Schema = {"host": t.HOST, "adminPass": {"type": "string"}}

EVACUATE_BODY = Versioned(
    {
        1: t.wrapped("evacuate", t.strict({**_EVACUATE_214, "onSharedStorage": t.BOOLEAN}, ("onSharedStorage",))),
        Change.EVACUATE_AUTO: t.wrapped("evacuate", t.strict(_EVACUATE_214)),
        Change.EVACUATE_FORCE: t.wrapped("evacuate", t.strict({**_EVACUATE_214, "force": t.BOOLEAN})),
        Change.NO_FORCE: t.wrapped("evacuate", t.strict(_EVACUATE_214)),
    }
)


# --- routes


class Evacuate(Extension):
    alias = "os-evacuate"
    title = "Evacuate"
    routes = (action("servers", "evacuate", "evacuate"),)

    @declares(policies.EVACUATE, body=EVACUATE_BODY)
    def evacuate(self, req: Request, id: str) -> Response:
        """Request an evacuation. The server gets a new disk from its image, because hosts do not share disks.

        Before 2.29, or with ``force``, a given ``host`` bypasses the scheduler's filters. Only its free
        resources count.
        """
        body = req.data["evacuate"]
        if strutils.bool_from_string(body.get("onSharedStorage", False)):
            raise exceptions.ValidationError(detail="onSharedStorage is not supported: hosts do not share disks.")
        password = server_password.admin_password(body)
        stopped = req.has(Change.EVACUATE_STOPPED)
        forced = not req.has(Change.EVACUATE_FORCE) or strutils.bool_from_string(body.get("force", False))
        payload = {"host": body.get("host"), "forced": forced, "admin_password": password, "stopped": stopped}
        self.compute.accept(req.context, id, operations.EVACUATE.kind, payload)
        if req.has(Change.EVACUATE_AUTO):
            return Response(status=200)
        return Response({"adminPass": password} if self.conf.api.enable_instance_password else {})
