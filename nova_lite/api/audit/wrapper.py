"""WSGI wrapper around a whole API: makes the event of each change, log-in and denied request."""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable
from typing import Any

from nova_lite.api.audit import notes
from nova_lite.api.audit.notes import Notes
from nova_lite.api.audit.recorder import Recorder
from nova_lite.api.http import wsgi
from nova_lite.objects import AuditEvent
from nova_lite.objects.audit import FAILURE, SUCCESS

App = Callable[[dict[str, Any], Any], Any]

AUTHENTICATE, REVOKE, READ = "authenticate", "revoke", "read"

_READS = ("GET", "HEAD", "OPTIONS", "TRACE")
_ACTIONS = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}
#: Routes that are neither a change nor a read, by method and the end of their path.
_LOG_INS = {
    ("POST", "/auth/tokens"): AUTHENTICATE,
    ("POST", "/ec2tokens"): AUTHENTICATE,
    ("POST", "/s3tokens"): AUTHENTICATE,
    ("DELETE", "/auth/tokens"): REVOKE,
}
#: Routes whose variable is a secret.
_SECRETS = ("/os-console-auth-tokens/{id}",)
#: Segments of a route's path that name no resource.
_NO_RESOURCE = re.compile(r"\{.*\}|v\d+(\.\d+)?|action|")


class AuditWrapper:
    """WSGI application that records requests to ``app``. ``service``: name of the API; ``observer``: its host."""

    def __init__(self, app: App, service: str, recorder: Recorder, observer: str) -> None:
        self._app = app
        self._service = service
        self.recorder = recorder
        self._observer = observer

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        is_open = True

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            nonlocal is_open
            if is_open:
                is_open = False
                self._record(environ, path, int(status.split(" ", 1)[0]))
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        return self._app(environ, start)

    def _record(self, environ: dict[str, Any], path: str, code: int) -> None:
        noted, action = notes.of(environ), _action(environ, code)
        if action is None:
            return
        user_id, project_id, context = noted.user_id, noted.project_id, environ.get(wsgi.CONTEXT)
        if context is not None and not user_id:
            user_id, project_id = context.user_id, context.project_id
        event = AuditEvent(
            uuid=str(uuid.uuid4()),
            event_time=datetime.datetime.now(datetime.UTC).replace(tzinfo=None),
            service=self._service,
            action=action[:64],
            outcome=SUCCESS if code < 400 else FAILURE,
            reason_code=code,
            request_id=clean(environ.get(wsgi.REQUEST_ID), 64),
            user_id=clean(user_id, 255),
            project_id=clean(project_id, 255),
            credential=clean(noted.credential, 255),
            address=clean(environ.get("REMOTE_ADDR"), 64),
            agent=clean(environ.get("HTTP_USER_AGENT"), 255),
            target_type=_target_type(self._service, noted),
            target_id=clean(_target_id(noted), 255),
            path=clean(_shown(path, noted), 512),
            observer=self._observer,
        )
        self.recorder.record(event)


def clean(text: object, length: int) -> str:
    """Return text that every database stores: printable, and at most so long."""
    shown = "" if text is None else str(text)[:length]
    return shown if shown.isascii() and shown.isprintable() else "".join(_clean_char(char) for char in shown)


def _clean_char(char: str) -> str:
    return char if char.isprintable() and not "\ud800" <= char <= "\udfff" else "?"


def _action(environ: dict[str, Any], code: int) -> str | None:
    """Return the action of a request, or None if it is not recorded.

    A read is recorded only if it is denied, and a request for an unknown URL not at all. A wrong password in a header
    is a failed log-in, whatever the request is.
    """
    method, noted = environ["REQUEST_METHOD"], notes.of(environ)
    if code in (401, 429) and "HTTP_AUTHORIZATION" in environ and wsgi.CONTEXT not in environ:
        return AUTHENTICATE
    if method in _READS:
        return READ if code == 403 else None
    if not noted.path and code in (404, 405):
        return None
    if noted.action:
        return f"update/{noted.action}"
    for (verb, end), action in _LOG_INS.items():
        if method == verb and noted.path.endswith(end):
            return action
    return _ACTIONS.get(method, "unknown")


def _target_type(service: str, noted: Notes) -> str:
    """Return the type of the resource by its route, as ``service/compute/servers``."""
    segments = [segment for segment in noted.path.split("/") if not _NO_RESOURCE.fullmatch(segment)]
    return "/".join(("service", service, *segments))[:255]


def _target_id(noted: Notes) -> str:
    """Return the id of the resource: the first of the URL, to which all others belong, or that of a new one."""
    first = re.search(r"\{(\w+)", noted.path)
    if first is None:
        return noted.made_id
    return "" if noted.path in _SECRETS else str(noted.variables.get(first.group(1), ""))


def _shown(path: str, noted: Notes) -> str:
    """Return the path of a request without its query and without secrets."""
    return wsgi.quote_path(path.rpartition("/")[0] + "/***" if noted.path in _SECRETS else path)
