"""Metadata definitions: namespaces with objects, properties, tags, and types of resources that they are about.

They change nothing in the cloud. Clients show them beside the properties of images, flavors and volumes.
"""

from __future__ import annotations

import datetime
import uuid
from typing import Any
from urllib.parse import quote, urlencode

from nova_lite.api.http import rest, validation
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.image import metadef_schemas
from nova_lite.base import exceptions
from nova_lite.objects import MetadefNamespace
from nova_lite.policies import image_service as policies

_ALL = "/metadefs/namespaces"
_ONE = f"{_ALL}/{{namespace}}"
_SCHEMAS = "/v2/schemas/metadefs"

#: Types of resources that OpenStack's services have. Namespaces may name others.
RESOURCE_TYPES = (
    "OS::Cinder::Volume",
    "OS::Glance::Image",
    "OS::Nova::Aggregate",
    "OS::Nova::Flavor",
    "OS::Nova::Server",
)

#: Most characters of texts.
_NAME, _TEXT = 80, 500
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_PROPERTY = frozenset(metadef_schemas.PROPERTY) | {"name"}
_ASSOCIATION = ("name", "prefix", "properties_target")


def _routes(kind: str) -> tuple[ServiceRoute, ...]:
    """Return the routes of one kind of parts."""
    of_all, of_one = f"{_ONE}/{kind}", f"{_ONE}/{kind}/{{key}}"
    return (
        ServiceRoute("GET", of_all, f"list_{kind}", policies.METADEFS),
        ServiceRoute("POST", of_all, f"add_{kind}", policies.CHANGE_METADEFS),
        ServiceRoute("DELETE", of_all, f"remove_all_{kind}", policies.CHANGE_METADEFS),
        ServiceRoute("GET", of_one, f"show_{kind}", policies.METADEFS),
        ServiceRoute("PUT", of_one, f"change_{kind}", policies.CHANGE_METADEFS),
        ServiceRoute("DELETE", of_one, f"remove_{kind}", policies.CHANGE_METADEFS),
    )


class Metadefs(rest.ServiceApplication):
    """Handlers of `ImageApp`."""

    metadef_routes = (
        ServiceRoute("GET", _ALL, "namespaces", policies.METADEFS),
        ServiceRoute("POST", _ALL, "create_namespace", policies.CHANGE_METADEFS),
        ServiceRoute("GET", _ONE, "namespace", policies.METADEFS),
        ServiceRoute("PUT", _ONE, "update_namespace", policies.CHANGE_METADEFS),
        ServiceRoute("DELETE", _ONE, "delete_namespace", policies.CHANGE_METADEFS),
        *_routes("objects"),
        *_routes("properties"),
        *_routes("tags"),
        ServiceRoute("POST", f"{_ONE}/tags/{{key}}", "add_tag_definition", policies.CHANGE_METADEFS),
        ServiceRoute("GET", f"{_ONE}/resource_types", "associations", policies.METADEFS),
        ServiceRoute("POST", f"{_ONE}/resource_types", "add_association", policies.CHANGE_METADEFS),
        ServiceRoute("DELETE", f"{_ONE}/resource_types/{{key}}", "remove_association", policies.CHANGE_METADEFS),
        ServiceRoute("GET", "/metadefs/resource_types", "resource_types", policies.METADEFS),
        ServiceRoute("GET", "/schemas/metadefs/{kind}", "metadef_schema", policies.SCHEMAS),
    )

    # --- namespaces

    def namespaces(self, req: ServiceRequest) -> Response:
        """List the namespaces that the project may see, by pages."""
        found = self.conductor.metadef_list(req.context)
        query = req.GET
        if "visibility" in query:
            found = [item for item in found if item.visibility == query["visibility"]]
        if "resource_types" in query:
            wanted = set(query["resource_types"].split(","))
            found = [item for item in found if wanted & item.resource_types.keys()]
        key, direction = query.get("sort_key", "created_at"), query.get("sort_dir", "desc")
        if key not in ("created_at", "updated_at", "namespace", "display_name", "visibility", "owner", "protected"):
            raise exceptions.ValidationError(detail=f"Namespaces are not sorted by {key[:64]}.")
        if direction not in ("asc", "desc"):
            raise exceptions.ValidationError(detail="Invalid sort direction: must be asc or desc")
        found.sort(key=lambda item: (str(getattr(item, key) or ""), item.namespace), reverse=direction == "desc")
        if "marker" in query:
            names = [item.namespace for item in found]
            if query["marker"] not in names:
                raise exceptions.NotFound(f"There is no namespace {query['marker'][:_NAME]}.")
            found = found[names.index(query["marker"]) + 1 :]
        limit = min(_number(query.get("limit", str(self.conf.api.max_limit))), self.conf.api.max_limit)
        shown = found[:limit]
        rest_of_query = [(name, value) for name, value in query.items() if name != "marker"]
        body: dict[str, Any] = {
            "namespaces": [_namespace(item) for item in shown],
            "first": _link(rest_of_query),
            "schema": f"{_SCHEMAS}/namespaces",
        }
        if shown and len(found) > limit:
            body["next"] = _link([*rest_of_query, ("marker", shown[-1].namespace)])
        return Response(body)

    def namespace(self, req: ServiceRequest, namespace: str) -> Response:
        """Show a namespace with all of its parts."""
        return Response(_whole(self.conductor.metadef_get(req.context, namespace)))

    def create_namespace(self, req: ServiceRequest) -> Response:
        body = req.json_object()
        fields: dict[str, Any] = {
            "visibility": "private",
            "protected": False,
            "owner": req.context.project_id,
            **_fields(body),
        }
        if "namespace" not in fields:
            raise exceptions.ValidationError(detail="'namespace' is a required property")
        parts: dict[str, Any] = {
            "objects": _named(_objects(body.get("objects"))),
            "properties": {
                _name(name): _property_of(value) for name, value in _mapping("properties", body.get("properties"))
            },
            "tags": {name: {} for name in _tags(body)},
            "resource_types": _named(
                [_association_of(item) for item in _list("resource_type_associations", body)],
            ),
        }
        wanted = MetadefNamespace(id=str(uuid.uuid4()), **fields, **parts)
        made = self.conductor.metadef_create(req.context, wanted)
        return Response(_namespace(made), 201, {"Location": f"{req.base_url}{_path(made.namespace)}"})

    def update_namespace(self, req: ServiceRequest, namespace: str) -> Response:
        """Change the fields that the body has. The others stay.

        Clients send a namespace back as they have read it, with its parts. Glance ignores these, other ones too.
        """
        body = req.json_object()
        changes = _fields(body)
        if any(body.get(part) for part in _PARTS):
            known = _whole(self.conductor.metadef_get(req.context, namespace))
            for part in _PARTS:
                if body.get(part) and body[part] != known.get(part):
                    raise exceptions.ValidationError(
                        detail=f"A namespace's {part} cannot be changed with it. Send them to {_path(namespace)}/"
                        f"{part.replace('resource_type_associations', 'resource_types')}."
                    )
        return Response(_namespace(self.conductor.metadef_update(req.context, namespace, changes)))

    def delete_namespace(self, req: ServiceRequest, namespace: str) -> Response:
        self.conductor.metadef_delete(req.context, namespace)
        return Response(status=204)

    # --- objects

    def list_objects(self, req: ServiceRequest, namespace: str) -> Response:
        found = self.conductor.metadef_get(req.context, namespace)
        shown = [_object(found, name) for name in found.objects]
        path = f"/v2{_path(namespace)}/objects"
        return Response({"objects": shown, "first": path, "schema": f"{_SCHEMAS}/objects"})

    def add_objects(self, req: ServiceRequest, namespace: str) -> Response:
        name, value = _object_of(req.json_object())
        return Response(_object(self._change(req, namespace, "objects", {name: value}, [name]), name), 201)

    def show_objects(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        return Response(_object(self._with(req, namespace, "objects", key), key))

    def change_objects(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        new, value = _object_of({"name": key, **req.json_object()})
        return Response(_object(self._replace(req, namespace, "objects", key, new, value), new))

    def remove_objects(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        return self._remove(req, namespace, "objects", key)

    def remove_all_objects(self, req: ServiceRequest, namespace: str) -> Response:
        return self._remove_all(req, namespace, "objects")

    # --- properties

    def list_properties(self, req: ServiceRequest, namespace: str) -> Response:
        found = self.conductor.metadef_get(req.context, namespace)
        return Response({"properties": {name: _property(found, name) for name in found.properties}})

    def add_properties(self, req: ServiceRequest, namespace: str) -> Response:
        body = req.json_object()
        name, value = _name(body.get("name")), _property_of(body)
        made = self._change(req, namespace, "properties", {name: value}, [name])
        return Response({"name": name, **_property(made, name)}, 201)

    def show_properties(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        """Show a property. ``resource_type``: the key has the prefix that the namespace gives to this type."""
        found = self.conductor.metadef_get(req.context, namespace)
        prefix = str(found.resource_types.get(req.GET.get("resource_type", ""), {}).get("prefix") or "")
        key = key.removeprefix(prefix)
        return Response({"name": prefix + key, **_property(_having(found, "properties", key), key)})

    def change_properties(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        body = req.json_object()
        new, value = _name(body.get("name", key)), _property_of(body)
        changed = self._replace(req, namespace, "properties", key, new, value)
        return Response({"name": new, **_property(changed, new)})

    def remove_properties(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        return self._remove(req, namespace, "properties", key)

    def remove_all_properties(self, req: ServiceRequest, namespace: str) -> Response:
        return self._remove_all(req, namespace, "properties")

    # --- tags

    def list_tags(self, req: ServiceRequest, namespace: str) -> Response:
        found = self.conductor.metadef_get(req.context, namespace)
        path = f"/v2{_path(namespace)}/tags"
        return Response({"tags": [{"name": name} for name in found.tags], "first": path, "schema": f"{_SCHEMAS}/tags"})

    def add_tags(self, req: ServiceRequest, namespace: str) -> Response:
        """Replace all tags, or add tags by the header ``X-OpenStack-Append``."""
        names = _tags(req.json_object())
        append = req.headers.get("X-OpenStack-Append", "").lower() == "true"
        self.conductor.metadef_parts_change(
            req.context, namespace, "tags", {name: {} for name in names}, names if append else [], not append
        )
        return Response({"tags": [{"name": name} for name in names]}, 201)

    def add_tag_definition(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        key = _name(key)
        return Response(_tag(self._change(req, namespace, "tags", {key: {}}, [key]), key), 201)

    def show_tags(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        return Response(_tag(self._with(req, namespace, "tags", key), key))

    def change_tags(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        new = _name(req.json_object().get("name"))
        return Response(_tag(self._replace(req, namespace, "tags", key, new, {}), new))

    def remove_tags(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        return self._remove(req, namespace, "tags", key)

    def remove_all_tags(self, req: ServiceRequest, namespace: str) -> Response:
        return self._remove_all(req, namespace, "tags")

    # --- types of resources

    def resource_types(self, req: ServiceRequest) -> Response:
        """List the types that OpenStack's services have, and the types in the visible namespaces."""
        names = {name for found in self.conductor.metadef_list(req.context) for name in found.resource_types}
        shown = [{"name": name} for name in sorted({*RESOURCE_TYPES, *names})]
        return Response({"resource_types": shown, "schema": f"{_SCHEMAS}/resource_types"})

    def associations(self, req: ServiceRequest, namespace: str) -> Response:
        found = self.conductor.metadef_get(req.context, namespace)
        return Response({"resource_type_associations": _associations(found)})

    def add_association(self, req: ServiceRequest, namespace: str) -> Response:
        name, value = _association_of(req.json_object())
        made = self._change(req, namespace, "resource_types", {name: value}, [name])
        return Response({"name": name, **made.resource_types[name]}, 201)

    def remove_association(self, req: ServiceRequest, namespace: str, key: str) -> Response:
        return self._remove(req, namespace, "resource_types", key)

    def metadef_schema(self, req: ServiceRequest, kind: str) -> Response:
        schema = metadef_schemas.SCHEMAS.get(kind)
        if schema is None:
            raise exceptions.NotFound(f"There is no schema metadefs/{kind[:64]}.")
        return Response(schema)

    # --- parts

    def _change(
        self,
        req: ServiceRequest,
        namespace: str,
        kind: str,
        changes: dict[str, dict[str, Any] | None],
        new: list[str],
    ) -> MetadefNamespace:
        return self.conductor.metadef_parts_change(req.context, namespace, kind, changes, new, False)

    def _replace(
        self, req: ServiceRequest, namespace: str, kind: str, name: str, new: str, value: dict[str, Any]
    ) -> MetadefNamespace:
        """Replace a part that exists, maybe under a new name."""
        self._with(req, namespace, kind, name)
        if new == name:
            return self._change(req, namespace, kind, {name: value}, [])
        return self._change(req, namespace, kind, {name: None, new: value}, [new])

    def _with(self, req: ServiceRequest, namespace: str, kind: str, name: str) -> MetadefNamespace:
        return _having(self.conductor.metadef_get(req.context, namespace), kind, name)

    def _remove(self, req: ServiceRequest, namespace: str, kind: str, name: str) -> Response:
        self._change(req, namespace, kind, {name: None}, [])
        return Response(status=204)

    def _remove_all(self, req: ServiceRequest, namespace: str, kind: str) -> Response:
        self.conductor.metadef_parts_change(req.context, namespace, kind, {}, [], True)
        return Response(status=204)


# --- views


def _whole(shown: MetadefNamespace) -> dict[str, Any]:
    """Return a namespace with all of its parts."""
    view = _namespace(shown)
    if shown.objects:
        view["objects"] = [_object(shown, name) for name in shown.objects]
    if shown.properties:
        view["properties"] = {name: _property(shown, name) for name in shown.properties}
    if shown.tags:
        view["tags"] = [_tag(shown, name) for name in shown.tags]
    return view


def _namespace(shown: MetadefNamespace) -> dict[str, Any]:
    view: dict[str, Any] = {
        "namespace": shown.namespace,
        "display_name": shown.display_name,
        "description": shown.description,
        "visibility": shown.visibility,
        "protected": shown.protected,
        "owner": shown.owner,
        "created_at": _time(shown.created_at),
        "updated_at": _time(shown.updated_at),
        "self": f"/v2{_path(shown.namespace)}",
        "schema": f"{_SCHEMAS}/namespace",
    }
    if shown.resource_types:
        view["resource_type_associations"] = _associations(shown)
    return view


def _associations(shown: MetadefNamespace) -> list[dict[str, Any]]:
    return [{"name": name, **value} for name, value in shown.resource_types.items()]


def _object(shown: MetadefNamespace, name: str) -> dict[str, Any]:
    path = f"/v2{_path(shown.namespace)}/objects/{quote(name, safe='')}"
    return {"name": name, **shown.objects[name], "self": path, "schema": f"{_SCHEMAS}/object"}


def _property(shown: MetadefNamespace, name: str) -> dict[str, Any]:
    return {key: value for key, value in shown.properties[name].items() if key not in ("created_at", "updated_at")}


def _tag(shown: MetadefNamespace, name: str) -> dict[str, Any]:
    return {"name": name, **shown.tags[name]}


def _having(shown: MetadefNamespace, kind: str, name: str) -> MetadefNamespace:
    if name not in getattr(shown, kind):
        raise exceptions.NotFound(f"The namespace {shown.namespace} has no {name[:_NAME]} among its {kind}.")
    return shown


def _path(namespace: str) -> str:
    return f"{_ALL}/{quote(namespace, safe='')}"


def _link(query: list[tuple[str, str]]) -> str:
    return f"/v2{_ALL}" + (f"?{urlencode(query)}" if query else "")


def _time(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# --- requests


_NAMESPACE = ("namespace", "display_name", "description", "visibility", "protected", "owner")
_PARTS = ("objects", "properties", "tags", "resource_type_associations")


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a namespace, without its parts."""
    _known("namespace", body, (*_NAMESPACE, *_PARTS, *_READ_ONLY))
    fields: dict[str, Any] = {}
    if "namespace" in body:
        fields["namespace"] = _name(body["namespace"])
    for name, most in (("display_name", _NAME), ("description", _TEXT), ("owner", 255)):
        if name in body:
            fields[name] = _text(name, body[name], most)
    if "visibility" in body:
        if body["visibility"] not in ("public", "private"):
            raise exceptions.ValidationError(detail="visibility must be public or private.")
        fields["visibility"] = body["visibility"]
    if "protected" in body:
        if not isinstance(body["protected"], bool):
            raise exceptions.ValidationError(detail="protected must be true or false.")
        fields["protected"] = body["protected"]
    return fields


def _object_of(body: Any) -> tuple[str, dict[str, Any]]:
    fields = _known("object", body, ("name", "description", "required", "properties", *_READ_ONLY))
    required = fields.get("required") or []
    if not isinstance(required, list) or not all(isinstance(item, str) for item in required):
        raise exceptions.ValidationError(detail="required must be a list of names.")
    properties = dict(_mapping("properties", fields.get("properties")))
    value = {
        "description": _text("description", fields.get("description"), _TEXT),
        "required": required,
        "properties": {_name(name): _property_of(item) for name, item in properties.items()},
    }
    return _name(fields.get("name")), value


#: Fields of responses, which clients send back with an update.
_READ_ONLY = ("created_at", "updated_at", "self", "schema")


def _objects(value: Any) -> list[tuple[str, dict[str, Any]]]:
    return [_object_of(item) for item in _list("objects", {"objects": value})]


def _property_of(body: Any) -> dict[str, Any]:
    fields = _known("property", body, (*_PROPERTY, *_READ_ONLY))
    if not isinstance(fields.get("title"), str) or len(fields["title"]) > 255:
        raise exceptions.ValidationError(detail="A property needs a title of at most 255 characters.")
    if fields.get("type") not in _TYPES:
        raise exceptions.ValidationError(detail=f"The type of a property is one of {', '.join(_TYPES)}.")
    _text("description", fields.get("description"), 4096)
    left_out = ("name", *_READ_ONLY)
    return {name: value for name, value in fields.items() if name not in left_out and value is not None}


def _association_of(body: Any) -> tuple[str, dict[str, Any]]:
    fields = _known("association", body, (*_ASSOCIATION, *_READ_ONLY))
    value = {name: _text(name, fields[name], _NAME) for name in _ASSOCIATION[1:] if fields.get(name) is not None}
    return _name(fields.get("name")), value


def _tags(body: dict[str, Any]) -> list[str]:
    items = _list("tags", body)
    names = [_name(_known("tag", item, ("name", *_READ_ONLY)).get("name")) for item in items]
    if len(set(names)) < len(names):
        raise exceptions.Conflict("The tags have a name twice.")
    return names


def _named(pairs: list[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise exceptions.Conflict("The namespace has a name twice.")
    return named


def _list(name: str, body: dict[str, Any]) -> list[Any]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise exceptions.ValidationError(detail=f"{name} must be a list.")
    return value


def _mapping(name: str, value: Any) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"{name} must be an object.")
    return list(value.items())


def _known(what: str, value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"The {what} must be an object.")
    unknown = sorted(value.keys() - set(names))
    if unknown:
        raise exceptions.ValidationError(detail=f"The {what} has the unknown field {unknown[0][:64]}.")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _NAME or not validation.is_shown(value):
        raise exceptions.ValidationError(detail=f"A name is a text of 1 to {_NAME} printable characters.")
    return value


def _text(name: str, value: Any, most: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > most:
        raise exceptions.ValidationError(detail=f"{name} must be a text of at most {most} characters.")
    return value


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise exceptions.ValidationError(detail="limit param must be a positive integer")
    return int(text)
