"""The metadata API: the documents of a guest, in EC2's and in OpenStack's tree."""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable
from typing import Any

import cachetools
import webob

from nova_lite.api.http import deploy, refusals, wsgi
from nova_lite.api.http.rate_limit import RateLimit
from nova_lite.api.metadata import callers, role
from nova_lite.api.metadata.callers import Caller
from nova_lite.base import exceptions
from nova_lite.metadata import documents
from nova_lite.metadata.documents import EC2_VERSIONS, LATEST, OPENSTACK_VERSIONS, MetadataDocuments
from nova_lite.metadata.vendordata import VendorData
from nova_lite.objects import Instance
from nova_lite.objects.instance import POSTED_PASSWORD

#: Largest number of cached servers.
MAX_REMEMBERED = 10_000

#: Size of the four columns that Nova has for a password.
MAX_PASSWORD_BYTES = 4 * 255

TEXT, JSON = "text/plain", "application/json"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> MetadataApp:
    del global_conf, local_conf
    return MetadataApp(deploy.services())


class MetadataApp:
    """WSGI application. Responses are plain text for scripts of guests, except OpenStack's JSON documents."""

    def __init__(self, services: wsgi.ApiServices, clock: Callable[[], float] = time.monotonic) -> None:
        conf = services.conf
        self._services = services
        self._callers = callers.load(conf)
        self._role = role.role_of(conf)
        self._vendor = VendorData(conf)
        self._limit = RateLimit(conf.api.metadata_requests_per_minute, clock)
        self._lock = threading.Lock()
        seconds = conf.api.metadata_cache_expiration
        self._cache: cachetools.TTLCache[Caller, Instance] = cachetools.TTLCache(MAX_REMEMBERED, seconds, timer=clock)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        response = refusals.respond(
            self._respond, webob.Request(environ), lambda error: _text(error.message, error.code)
        )
        return response(environ, start_response)

    def _respond(self, req: webob.Request) -> webob.Response:
        caller = self._callers.of(req)
        self._limit.count(caller.name)
        path = posixpath.normpath("/" + req.environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace"))
        first, *rest = path.lstrip("/").split("/")
        if first not in ("ec2", "openstack"):
            first, rest = "ec2", [first, *rest] if first else []
        is_password = first == "openstack" and rest[1:] == [documents.PASSWORD]
        if req.method not in ("GET", "HEAD") and not (is_password and req.method == "POST"):
            response = _text("Only GET is supported.", 405)
            response.headers["Allow"] = "GET, HEAD"
            return response
        if first == "ec2" and not rest:
            return _text(_listing([*EC2_VERSIONS, LATEST]))
        instance = self._instance(caller)
        if instance is None:
            return _not_found()
        try:
            return self._openstack(req, caller, instance, rest) if first == "openstack" else self._ec2(instance, rest)
        except KeyError:
            return _not_found()

    def _instance(self, caller: Caller) -> Instance | None:
        with self._lock:
            instance = self._cache.get(caller)
        if instance is None:
            instance = self._callers.find(self._guests(), caller)
            if instance is not None:
                with self._lock:
                    self._cache[caller] = instance
        return instance

    def _guests(self) -> role.GuestQueries:
        return role.queries(self._role, self._services.conf.host, self._services.conductor)

    def _documents(self, instance: Instance) -> MetadataDocuments:
        return MetadataDocuments(instance, instance.vifs, self._vendor)

    def _ec2(self, instance: Instance, path: list[str]) -> webob.Response:
        """Return a node of EC2's tree. Raises `KeyError` if there is none."""
        node: Any = self._documents(instance).ec2(_known_version(EC2_VERSIONS, path[0]))
        for name in path[1:]:
            if not isinstance(node, dict) or name == documents.NAME:
                raise KeyError(name)
            node = node[name]
        return _text(node if isinstance(node, bytes) else _listing(node))

    def _openstack(self, req: webob.Request, caller: Caller, instance: Instance, path: list[str]) -> webob.Response:
        """Return a node of OpenStack's tree. Raises `KeyError` if there is none."""
        if not path:
            return _text(_listing([*OPENSTACK_VERSIONS, LATEST]))
        version = _known_version(OPENSTACK_VERSIONS, path[0])
        instance_documents = self._documents(instance)
        if len(path) == 1:
            return _text(_listing(instance_documents.names(version)))
        name = "/".join(path[1:])
        if name == documents.PASSWORD and name in instance_documents.names(version):
            return self._password(req, caller, instance)
        data = instance_documents.document(version, name)
        return _text(data) if name == documents.USER_DATA else _response(data, JSON)

    def _password(self, req: webob.Request, caller: Caller, instance: Instance) -> webob.Response:
        if req.method != "POST":
            return _text(instance.system_metadata.get(POSTED_PASSWORD, ""))
        if req.content_length is None or not 0 < req.content_length <= MAX_PASSWORD_BYTES:
            raise exceptions.Invalid(f"A password has 1 to {MAX_PASSWORD_BYTES} bytes.")
        try:
            password = req.body.decode("ascii")
        except UnicodeDecodeError as error:
            raise exceptions.Invalid("A password must be encrypted with the key pair and encoded in base64.") from error
        self._guests().set_password(instance, password)
        with self._lock:
            self._cache.pop(caller, None)
        return _text("")


def _known_version(versions: tuple[str, ...], version: str) -> str:
    if version == LATEST:
        return versions[-1]
    if version not in versions:
        raise KeyError(version)
    return version


def _listing(node: Any) -> str:
    """Return a node of the tree in EC2's form: one name per line, with a slash after names of directories."""
    if isinstance(node, dict):
        return "\n".join(_entry(name, node[name]) for name in sorted(node) if name != documents.NAME)
    return "\n".join(node) if isinstance(node, list) else str(node)


def _entry(name: str, child: Any) -> str:
    if not isinstance(child, dict):
        return name
    shown: str = child.get(documents.NAME, f"{name}/")
    return shown


def _response(body: bytes, content_type: str, status: int = 200) -> webob.Response:
    charset = "utf-8" if content_type == TEXT else None
    return webob.Response(body=body, status=status, content_type=content_type, charset=charset)


def _text(body: str | bytes, status: int = 200) -> webob.Response:
    return _response(body.encode() if isinstance(body, str) else body, TEXT, status)


def _not_found() -> webob.Response:
    return _text("The resource could not be found.", 404)
