"""``/flavors/{id}/os-extra_specs``: hardware settings and scheduling properties of a flavor."""

from __future__ import annotations

from typing import Any

from nova_lite import hardware
from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import ANY_KEY, Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import protection
from nova_lite.policies import flavors as policies

# --- schemas

EXTRA_SPECS_CREATE_BODY = t.wrapped("extra_specs", t.EXTRA_SPECS)
EXTRA_SPECS_UPDATE_BODY = {**t.EXTRA_SPECS, "minProperties": 1, "maxProperties": 1}


# --- routes

_PATH = "/flavors/{flavor_id}/os-extra_specs"


class FlavorExtraSpecs(Extension):
    alias = "os-flavor-extra-specs"
    title = "Flavor extra specs"
    routes = (
        Route("GET", _PATH, "index"),
        Route("POST", _PATH, "create"),
        Route("GET", _PATH + "/{key}", "show"),
        Route("PUT", _PATH + "/{key}", "update"),
        Route("DELETE", _PATH + "/{key}", "delete"),
    )

    @declares(policies.SPECS_INDEX, query=t.NO_PARAMETERS, response="extra_specs")
    def index(self, req: Request, flavor_id: str) -> Response:
        return Response({"extra_specs": self.conductor.flavor_get(req.context, flavor_id).extra_specs})

    @declares(policies.SPECS_SHOW, query=t.NO_PARAMETERS, response=ANY_KEY)
    def show(self, req: Request, flavor_id: str, key: str) -> Response:
        specs = self.conductor.flavor_get(req.context, flavor_id).extra_specs
        if key not in specs:
            raise exceptions.FlavorExtraSpecNotFound(flavor_id=flavor_id, key=key)
        return Response({key: specs[key]})

    @declares(policies.SPECS_CREATE, body=EXTRA_SPECS_CREATE_BODY, response="extra_specs")
    def create(self, req: Request, flavor_id: str) -> Response:
        specs = _checked(req, req.data["extra_specs"])
        self.conductor.flavor_extra_specs_update(req.context, flavor_id, specs)
        return Response({"extra_specs": specs})

    @declares(policies.SPECS_UPDATE, body=EXTRA_SPECS_UPDATE_BODY, response=ANY_KEY)
    def update(self, req: Request, flavor_id: str, key: str) -> Response:
        if key not in req.data:
            raise exceptions.ValidationError(detail="Request body and URI mismatch")
        specs = _checked(req, req.data)
        self.conductor.flavor_extra_specs_update(req.context, flavor_id, specs)
        return Response(specs)

    @declares(policies.SPECS_DELETE)
    def delete(self, req: Request, flavor_id: str, key: str) -> Response:
        self.conductor.flavor_extra_spec_delete(req.context, flavor_id, key)
        return Response()


def _checked(req: Request, specs: dict[str, Any]) -> dict[str, str]:
    """Return extra specs as text. Raise an error for unsupported values.

    Since 2.86 the names and values of known extra specs are checked as well.
    """
    texts = {key: str(value) for key, value in specs.items()}
    protection.check(texts)
    for key, value in texts.items():
        hardware.check_extra_spec(key, value, req.has(Change.EXTRA_SPECS_CHECKED))
    return texts
