"""WSGI application of the join API. Its callers have no account: a token or a host's key signs the request."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import webob

from nova_lite.api.http import deploy, refusals, wsgi
from nova_lite.api.http.rate_limit import RateLimit
from nova_lite.api.join import images
from nova_lite.base import exceptions, ip, join_requests
from nova_lite.base.context import get_admin_context
from nova_lite.objects import JoinRequest, TrustList

LOG = logging.getLogger(__name__)

#: Requests of one client, and of all clients, to one worker within a minute.
MAX_OF_CLIENT, MAX_OF_ALL = 60, 600
#: Seconds for which a worker passes on the same list.
CACHE_SECONDS = 1.0
#: The request is the body with signatures around it.
MAX_REQUEST = 2 * join_requests.MAX_BODY
#: Methods by path. No caller has an account here: each request but the first is signed.
ROUTES = {"/v1/trust": ("GET",), "/v1/hosts": ("POST",), "/v1/images/{image_id}": ("GET", "PUT")}


def app_factory(global_conf: dict[str, str], **local_conf: str) -> JoinApp:
    del global_conf, local_conf
    return JoinApp(deploy.services())


class JoinApp:
    """``GET /v1/trust``, ``POST /v1/hosts``, and ``GET`` and ``PUT`` of ``/v1/images/ID``. Responses are JSON, or data
    of images.
    """

    def __init__(self, services: wsgi.ApiServices, clock: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._clock = clock
        self._of_client = RateLimit(MAX_OF_CLIENT, clock)
        self._of_all = RateLimit(MAX_OF_ALL, clock)
        self._lock = threading.Lock()
        self._trust: TrustList | None = None
        self._read = -CACHE_SECONDS
        self._images = images.HostImages(services)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        response = refusals.respond(self._respond, webob.Request(environ), _refusal)
        return response(environ, start_response)

    def _respond(self, req: webob.Request) -> webob.Response:
        parent, _, name = req.path_info.rstrip("/").rpartition("/")
        is_image = parent == "/v1/images"
        allowed = ROUTES.get(f"{parent}/{{image_id}}" if is_image else f"{parent}/{name}")
        if allowed is None:
            raise exceptions.NotFound("There are GET /v1/trust, POST /v1/hosts, and GET and PUT /v1/images/ID.")
        if req.method not in allowed:
            message = f"Only {' and '.join(allowed)} is supported."
            response = _json({"error": {"code": 405, "message": message}}, 405)
            response.headers["Allow"] = ", ".join(allowed)
            return response
        if is_image:
            return self._images.respond(req, name)
        return self._get_trust(req) if name == "trust" else self._join(req)

    def _get_trust(self, req: webob.Request) -> webob.Response:
        trust = self._current()
        if trust is None:
            raise exceptions.ServiceUnavailable(
                "The cloud has not published its keys yet: on the controller, look at nova-lite-registrar."
            )
        if req.GET.get("known") == str(trust.serial):
            return webob.Response(status=204)
        return _json(msgspec.to_builtins(trust))

    def _current(self) -> TrustList | None:
        """Return the list, which one request a second reads again. The others do not wait for that one.

        While no conductor answers, hosts get the list that this worker read last.
        """
        if self._clock() - self._read < CACHE_SECONDS or not self._lock.acquire(blocking=self._trust is None):
            return self._trust
        try:
            self._trust = self._services.conductor.trust_get(get_admin_context())
        except exceptions.ServiceUnavailable:
            if self._trust is None:
                raise
        finally:
            self._read = self._clock()
            self._lock.release()
        return self._trust

    def _join(self, req: webob.Request) -> webob.Response:
        client = ip.client_of(req.remote_addr or "")
        self._of_client.count(client)
        self._of_all.count("")
        if req.content_length is None or not 0 < req.content_length <= MAX_REQUEST:
            raise exceptions.InvalidInput(reason=f"a request has 1 to {MAX_REQUEST} bytes.")
        try:
            request = msgspec.json.decode(req.body, type=JoinRequest)
        except msgspec.DecodeError as error:
            raise exceptions.InvalidInput(reason="this is no request to join.") from error
        try:
            state = self._services.conductor.host_join(get_admin_context(), request)
        except (exceptions.JoinTokenInvalid, exceptions.JoinRefused, exceptions.JoinedHostExists) as error:
            refused = error
        else:
            return _json(msgspec.to_builtins(state))
        LOG.warning("A request to join from %s is refused: %s", client, refused.message)
        raise refused


def _refusal(error: exceptions.NovaLiteException) -> webob.Response:
    return _json({"error": {"code": error.code, "message": error.message}}, error.code)


def _json(content: Any, status: int = 200) -> webob.Response:
    body = json.dumps(content).encode()
    return webob.Response(body=body, status=status, content_type="application/json", charset="utf-8")
