"""Metadata definitions: namespaces with objects, properties, tags, and types of resources that they are about.

They change nothing in the cloud. Clients show them beside the properties of images, flavors and volumes.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from nova_lite.api.http import bodies, validation
from nova_lite.api.http.rest import ServiceRequest, ServiceResource, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.image import metadef_schemas
from nova_lite.api.image.views import View
from nova_lite.base import exceptions
from nova_lite.objects import MetadefNamespace
from nova_lite.policies import image_service as policies

H = TypeVar("H", bound=Callable[..., Any])

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
_SORT_KEYS = ("created_at", "updated_at", "namespace", "display_name", "visibility", "owner", "protected")
_QUERY = ("visibility", "resource_types", "sort_key", "sort_dir", "marker", "limit")
_PROPERTY = frozenset(metadef_schemas.PROPERTY) | {"name"}
_ASSOCIATION = ("name", "prefix", "properties_target")


# --- views


def _whole(shown: MetadefNamespace) -> View:
    """Return a namespace with all of its parts."""
    view = _namespace(shown)
    if shown.objects:
        view["objects"] = [_object(shown, name) for name in shown.objects]
    if shown.properties:
        view["properties"] = {name: _property(shown, name) for name in shown.properties}
    if shown.tags:
        view["tags"] = [_tag(shown, name) for name in shown.tags]
    return view


def _namespace(shown: MetadefNamespace) -> View:
    view: View = {
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


def _associations(shown: MetadefNamespace) -> list[View]:
    return [_association(shown, name) for name in shown.resource_types]


def _object(shown: MetadefNamespace, name: str) -> View:
    path = f"/v2{_path(shown.namespace)}/objects/{quote(name, safe='')}"
    return {"name": name, **shown.objects[name], "self": path, "schema": f"{_SCHEMAS}/object"}


def _property(shown: MetadefNamespace, name: str) -> View:
    return {key: value for key, value in shown.properties[name].items() if key not in ("created_at", "updated_at")}


def _named_property(shown: MetadefNamespace, name: str) -> View:
    return {"name": name, **_property(shown, name)}


def _association(shown: MetadefNamespace, name: str) -> View:
    return {"name": name, **shown.resource_types[name]}


def _tag(shown: MetadefNamespace, name: str) -> View:
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

#: Name and value of a part.
Part: TypeAlias = tuple[str, dict[str, Any]]
Changes: TypeAlias = Mapping[str, dict[str, Any] | None]

_SENT_PARTS = ("objects", "properties", "tags", "resource_type_associations")
#: Fields of responses, which clients send back with an update.
_READ_ONLY = ("created_at", "updated_at", "self", "schema")


def _object_of(body: Any) -> Part:
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


def _property_of(body: Any) -> dict[str, Any]:
    fields = _known("property", body, (*_PROPERTY, *_READ_ONLY))
    if not isinstance(fields.get("title"), str) or len(fields["title"]) > 255:
        raise exceptions.ValidationError(detail="A property needs a title of at most 255 characters.")
    if fields.get("type") not in _TYPES:
        raise exceptions.ValidationError(detail=f"The type of a property is one of {', '.join(_TYPES)}.")
    _text("description", fields.get("description"), 4096)
    left_out = ("name", *_READ_ONLY)
    return {name: value for name, value in fields.items() if name not in left_out and value is not None}


def _association_of(body: Any) -> Part:
    fields = _known("association", body, (*_ASSOCIATION, *_READ_ONLY))
    value = {name: _text(name, fields[name], _NAME) for name in _ASSOCIATION[1:] if fields.get(name) is not None}
    return _name(fields.get("name")), value


def _tag_of(body: dict[str, Any]) -> Part:
    return _name(body.get("name")), {}


def _tags(body: dict[str, Any], name: str) -> list[str]:
    items = _list(name, body)
    names = [_name(_known("tag", item, ("name", *_READ_ONLY)).get("name")) for item in items]
    if len(set(names)) < len(names):
        raise exceptions.Conflict("The tags have a name twice.")
    return names


def _named_property_of(body: dict[str, Any]) -> Part:
    return _name(body.get("name")), _property_of(body)


def _named(pairs: list[Part]) -> dict[str, dict[str, Any]]:
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


# --- bodies


def _checked_text(most: int) -> msgspec.Meta:
    return bodies.checked(lambda body, name: _text(name, body[name], most), maxLength=most)


def _new_name(body: dict[str, Any], name: str) -> str:
    return _name(body[name])


def _visibility(body: dict[str, Any], name: str) -> Any:
    if body[name] not in ("public", "private"):
        raise exceptions.ValidationError(detail="visibility must be public or private.")
    return body[name]


def _protected(body: dict[str, Any], name: str) -> bool:
    if not isinstance(body[name], bool):
        raise exceptions.ValidationError(detail="protected must be true or false.")
    return bool(body[name])


class ChangedNamespace(bodies.Body):
    namespace: Annotated[str, bodies.checked(_new_name, maxLength=_NAME)] = bodies.SAME
    display_name: Annotated[str | None, _checked_text(_NAME)] = None
    description: Annotated[str | None, _checked_text(_TEXT)] = None
    owner: Annotated[str | None, _checked_text(255)] = None
    visibility: Annotated[str, bodies.checked(_visibility, enum=["public", "private"])] = "private"
    protected: Annotated[bool, bodies.checked(_protected)] = False


def _new_objects(body: dict[str, Any], name: str) -> dict[str, Any]:
    return _named([_object_of(item) for item in _list(name, body)])


def _new_properties(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {_name(key): _property_of(value) for key, value in _mapping(name, body[name])}


def _new_tags(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: {} for key in _tags(body, name)}


def _new_associations(body: dict[str, Any], name: str) -> dict[str, Any]:
    return _named([_association_of(item) for item in _list(name, body)])


class NewNamespace(ChangedNamespace):
    objects: Annotated[dict[str, Any], bodies.checked(_new_objects)] = {}
    properties: Annotated[dict[str, Any], bodies.checked(_new_properties)] = {}
    tags: Annotated[dict[str, Any], bodies.checked(_new_tags)] = {}
    resource_type_associations: Annotated[dict[str, Any], bodies.checked(_new_associations)] = {}


def _fields(kind: type[ChangedNamespace], body: dict[str, Any]) -> dict[str, Any]:
    return bodies.changes(kind, _known("namespace", body, (*bodies.names(NewNamespace), *_READ_ONLY)))


# --- parts of a namespace


class _Kind(NamedTuple):
    parse: Callable[[Any], Part]
    view: Callable[[MetadefNamespace, str], View]


_PARTS = {
    "objects": _Kind(_object_of, _object),
    "properties": _Kind(_named_property_of, _named_property),
    "tags": _Kind(_tag_of, _tag),
    "resource_types": _Kind(_association_of, _association),
}
_KINDS = ("objects", "properties", "tags")


def _parts(method: str, path: str, policy: str, *kinds: str, **declared: Any) -> Callable[[H], H]:
    """Declare a URL of each kind of parts. ``path``: the rest of it. Without ``kinds`` it is one of all `_KINDS`."""

    def mark(handler: H) -> H:
        for kind in kinds or _KINDS:
            handler = route(method, f"{_ONE}/{kind}{path}", policy, **declared)(handler)
        return handler

    return mark


def _kind(req: ServiceRequest) -> str:
    """Return the kind of parts that the URL is about."""
    return req.service_route.path.split("/")[4]


class Metadefs(ServiceResource):
    """Metadata definitions."""

    # --- namespaces

    @route("GET", _ALL, policies.METADEFS, query=_QUERY)
    def index(self, req: ServiceRequest) -> View:
        """List the namespaces that the project may see, by pages."""
        found = self.conductor.metadef_list(req.context)
        query = req.GET
        if "visibility" in query:
            found = [item for item in found if item.visibility == query["visibility"]]
        if "resource_types" in query:
            wanted = set(query["resource_types"].split(","))
            found = [item for item in found if wanted & item.resource_types.keys()]
        key, direction = query.get("sort_key", "created_at"), query.get("sort_dir", "desc")
        if key not in _SORT_KEYS:
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
        body: View = {
            "namespaces": [_namespace(item) for item in shown],
            "first": _link(rest_of_query),
            "schema": f"{_SCHEMAS}/namespaces",
        }
        if shown and len(found) > limit:
            body["next"] = _link([*rest_of_query, ("marker", shown[-1].namespace)])
        return body

    @route("GET", _ONE, policies.METADEFS)
    def show(self, req: ServiceRequest, namespace: str) -> View:
        """Show a namespace with all of its parts."""
        return _whole(self.conductor.metadef_get(req.context, namespace))

    @route("POST", _ALL, policies.CHANGE_METADEFS, body=NewNamespace, status=201)
    def create(self, req: ServiceRequest) -> Response:
        fields = _fields(NewNamespace, req.json_object())
        if "namespace" not in fields:
            raise exceptions.ValidationError(detail="'namespace' is a required property")
        fields["resource_types"] = fields.pop("resource_type_associations", {})
        wanted = MetadefNamespace(id=str(uuid.uuid4()), **{"owner": req.context.project_id, **fields})
        made = self.conductor.metadef_create(req.context, wanted)
        return Response(_namespace(made), 201, {"Location": f"{req.base_url}{_path(made.namespace)}"})

    @route("PUT", _ONE, policies.CHANGE_METADEFS, body=ChangedNamespace)
    def update(self, req: ServiceRequest, namespace: str) -> View:
        """Change the fields that the body has. The others stay.

        Clients send a namespace back as they have read it, with its parts. Glance ignores these, other ones too.
        """
        body = req.json_object()
        changes = _fields(ChangedNamespace, body)
        if any(body.get(part) for part in _SENT_PARTS):
            known = _whole(self.conductor.metadef_get(req.context, namespace))
            for part in _SENT_PARTS:
                if body.get(part) and body[part] != known.get(part):
                    raise exceptions.ValidationError(
                        detail=f"A namespace's {part} cannot be changed with it. Send them to {_path(namespace)}/"
                        f"{part.replace('resource_type_associations', 'resource_types')}."
                    )
        return _namespace(self.conductor.metadef_update(req.context, namespace, changes))

    @route("DELETE", _ONE, policies.CHANGE_METADEFS, status=204)
    def delete(self, req: ServiceRequest, namespace: str) -> None:
        self.conductor.metadef_delete(req.context, namespace)

    # --- objects, properties and tags of a namespace

    @_parts("GET", "", policies.METADEFS)
    def index_parts(self, req: ServiceRequest, namespace: str) -> View:
        kind = _kind(req)
        found = self.conductor.metadef_get(req.context, namespace)
        if kind == "properties":
            return {kind: {name: _property(found, name) for name in found.properties}}
        shown = [_object(found, name) if kind == "objects" else {"name": name} for name in getattr(found, kind)]
        return {kind: shown, "first": f"/v2{_path(namespace)}/{kind}", "schema": f"{_SCHEMAS}/{kind}"}

    @_parts("POST", "", policies.CHANGE_METADEFS, "objects", "properties", "resource_types", status=201)
    def add_part(self, req: ServiceRequest, namespace: str) -> View:
        kind = _kind(req)
        name, value = _PARTS[kind].parse(req.json_object())
        return _PARTS[kind].view(self._change(req, namespace, kind, {name: value}, [name]), name)

    @_parts("POST", "", policies.CHANGE_METADEFS, "tags", status=201)
    def add_tags(self, req: ServiceRequest, namespace: str) -> View:
        """Replace all tags, or add tags by the header ``X-OpenStack-Append``."""
        names = _tags(req.json_object(), "tags")
        append = req.headers.get("X-OpenStack-Append", "").lower() == "true"
        self._change(req, namespace, "tags", {name: {} for name in names}, names if append else [], not append)
        return {"tags": [{"name": name} for name in names]}

    @_parts("POST", "/{key}", policies.CHANGE_METADEFS, "tags", status=201)
    def add_tag(self, req: ServiceRequest, namespace: str, key: str) -> View:
        key = _name(key)
        return _tag(self._change(req, namespace, "tags", {key: {}}, [key]), key)

    @_parts("GET", "/{key}", policies.METADEFS, "objects", "tags")
    def show_part(self, req: ServiceRequest, namespace: str, key: str) -> View:
        kind = _kind(req)
        return _PARTS[kind].view(_having(self.conductor.metadef_get(req.context, namespace), kind, key), key)

    @_parts("GET", "/{key}", policies.METADEFS, "properties", query=("resource_type",))
    def show_property(self, req: ServiceRequest, namespace: str, key: str) -> View:
        """Show a property. ``resource_type``: the key has the prefix that the namespace gives to this type."""
        found = self.conductor.metadef_get(req.context, namespace)
        prefix = str(found.resource_types.get(req.GET.get("resource_type", ""), {}).get("prefix") or "")
        key = key.removeprefix(prefix)
        return {"name": prefix + key, **_property(_having(found, "properties", key), key)}

    @_parts("PUT", "/{key}", policies.CHANGE_METADEFS)
    def change_part(self, req: ServiceRequest, namespace: str, key: str) -> View:
        """Replace a part that exists, maybe under a new name, which only a tag needs."""
        kind, sent = _kind(req), req.json_object()
        new, value = _PARTS[kind].parse(sent if kind == "tags" else {"name": key, **sent})
        _having(self.conductor.metadef_get(req.context, namespace), kind, key)
        changes = {key: value} if new == key else {key: None, new: value}
        return _PARTS[kind].view(self._change(req, namespace, kind, changes, [new] if new != key else []), new)

    @_parts("DELETE", "/{key}", policies.CHANGE_METADEFS, *_KINDS, "resource_types", status=204)
    def remove_part(self, req: ServiceRequest, namespace: str, key: str) -> None:
        self._change(req, namespace, _kind(req), {key: None}, [])

    @_parts("DELETE", "", policies.CHANGE_METADEFS, status=204)
    def remove_parts(self, req: ServiceRequest, namespace: str) -> None:
        self._change(req, namespace, _kind(req), {}, [], True)

    def _change(
        self, req: ServiceRequest, namespace: str, kind: str, changes: Changes, new: list[str], replace: bool = False
    ) -> MetadefNamespace:
        return self.conductor.metadef_parts_change(req.context, namespace, kind, dict(changes), new, replace)

    # --- types of resources

    @route("GET", "/metadefs/resource_types", policies.METADEFS)
    def index_resource_types(self, req: ServiceRequest) -> View:
        """List the types that OpenStack's services have, and the types in the visible namespaces."""
        names = {name for found in self.conductor.metadef_list(req.context) for name in found.resource_types}
        shown = [{"name": name} for name in sorted({*RESOURCE_TYPES, *names})]
        return {"resource_types": shown, "schema": f"{_SCHEMAS}/resource_types"}

    @route("GET", f"{_ONE}/resource_types", policies.METADEFS, response="resource_type_associations")
    def index_associations(self, req: ServiceRequest, namespace: str) -> list[View]:
        return _associations(self.conductor.metadef_get(req.context, namespace))

    @route("GET", "/schemas/metadefs/{kind}", policies.SCHEMAS)
    def schema(self, req: ServiceRequest, kind: str) -> View:
        schema = metadef_schemas.SCHEMAS.get(kind)
        if schema is None:
            raise exceptions.NotFound(f"There is no schema metadefs/{kind[:64]}.")
        return schema
