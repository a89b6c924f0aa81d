"""Quality of service of volume types, which is kept for clients."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from nova_lite.api.http import bodies
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.api.volume.types import Types
from nova_lite.base import exceptions
from nova_lite.objects import VolumeQosSpecs
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/qos-specs", "/qos-specs/{id}", "qos_specs"
_TYPE = ("vol_type_id",)

CONSUMERS = ("front-end", "back-end", "both")


def _keys(fields: dict[str, Any], name: str) -> list[str]:
    keys = fields.get(name)
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise exceptions.ValidationError(detail="keys must be a list of the names of specs.")
    return keys


class SpecKeys(bodies.Body):
    keys: Annotated[list[str], bodies.checked(_keys, minItems=1)]


class Qos(VolumeResource):
    """Quality of service of volume types."""

    @route("GET", _ALL, policies.QOS, query=listing.PAGE, response=_KEY)
    def index(self, req: ServiceRequest) -> list[views.View]:
        found = listing.page_of(req, self.conductor.volume_qos_list(req.context), self.conf.api.max_limit)
        return [views.qos(item) for item in found]

    @route("POST", _ALL, policies.CHANGE_QOS, key=_KEY)
    def create(self, req: ServiceRequest) -> Response:
        fields = dict(requests.body(req))
        name = requests.text(fields, "name")
        if not name:
            raise exceptions.ValidationError(detail="QoS specs need a name.")
        consumer = _consumer(fields.get("consumer") or "back-end")
        specs = {key: value for key, value in fields.items() if key not in ("name", "consumer")}
        wanted = VolumeQosSpecs(
            id=str(uuid.uuid4()), name=name, consumer=consumer, specs=requests.metadata(specs, _KEY)
        )
        return self._shown(req, self.conductor.volume_qos_create(req.context, wanted))

    @route("GET", _ONE, policies.QOS)
    def show(self, req: ServiceRequest, id: str) -> Response:
        return self._shown(req, self.conductor.volume_qos_get(req.context, id))

    def _shown(self, req: ServiceRequest, shown: VolumeQosSpecs) -> Response:
        return Response({_KEY: views.qos(shown), "links": views.links(req, shown.id, "qos-specs")})

    @route("PUT", _ONE, policies.CHANGE_QOS, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        """Set some of the specs. The response repeats the request."""
        fields = requests.items(req)
        changes: dict[str, Any] = {"specs": {key: value for key, value in fields.items() if key != "consumer"}}
        if "consumer" in fields:
            changes["consumer"] = _consumer(fields["consumer"])
        self.conductor.volume_qos_update(req.context, id, changes)
        return fields

    @route("PUT", f"{_ONE}/delete_keys", policies.CHANGE_QOS, body=SpecKeys, status=202)
    def delete_keys(self, req: ServiceRequest, id: str) -> None:
        keys = bodies.read(SpecKeys, req.json_object()).keys
        known = self.conductor.volume_qos_get(req.context, id).specs
        for key in keys:
            if key not in known:
                raise exceptions.ValidationError(detail=f"QoS specs {id[:64]} have no spec with key {key[:64]}.")
        self.conductor.volume_qos_update(req.context, id, {"specs": dict.fromkeys(keys)})

    @route("DELETE", _ONE, policies.CHANGE_QOS, query=("force",), status=202)
    def delete(self, req: ServiceRequest, id: str) -> None:
        force = requests.flag(req.GET.get("force", False), "force")
        self.conductor.volume_qos_delete(req.context, id, force)

    # --- types with the specs

    @route("GET", f"{_ONE}/associations", policies.QOS, response="qos_associations")
    def associations(self, req: ServiceRequest, id: str) -> list[views.View]:
        types = self.conductor.volume_qos_get(req.context, id).types
        return [{"association_type": "volume_type", "name": name, "id": key} for key, name in types.items()]

    @route("GET", f"{_ONE}/associate", policies.CHANGE_QOS, query=_TYPE, status=202)
    def associate(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_qos_associate(req.context, id, self._type_in_query(req))

    @route("GET", f"{_ONE}/disassociate", policies.CHANGE_QOS, query=_TYPE, status=202)
    def disassociate(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_qos_disassociate(req.context, id, self._type_in_query(req))

    def _type_in_query(self, req: ServiceRequest) -> str:
        reference = req.GET.get("vol_type_id")
        if not reference:
            raise exceptions.ValidationError(detail="The query needs vol_type_id, the id of a volume type.")
        return self.app.part(Types).find(req, reference).id

    @route("GET", f"{_ONE}/disassociate_all", policies.CHANGE_QOS, status=202)
    def disassociate_all(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_qos_disassociate_all(req.context, id)


def _consumer(value: Any) -> str:
    if value not in CONSUMERS:
        raise exceptions.ValidationError(detail=f"The consumer of QoS specs is one of {', '.join(CONSUMERS)}.")
    return str(value)
