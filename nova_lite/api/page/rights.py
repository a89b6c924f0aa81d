"""``/rights``: what the policy rules allow the caller, what servers accept in each state, and reachable consoles."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import webob

from nova_lite import policies
from nova_lite.api.http import deploy, wsgi
from nova_lite.api.page import consoles
from nova_lite.api.page.cloud_images import CloudImagesApp
from nova_lite.api.page.configuration import ConfigurationApp
from nova_lite.api.page.daemons import DaemonsApp
from nova_lite.api.page.events import EventsApp
from nova_lite.base import ip
from nova_lite.operations import OPERATIONS, Operation


def app_factory(global_conf: dict[str, str], **local_conf: str) -> deploy.App:
    """Return the page's own applications for authenticated callers."""
    del global_conf, local_conf
    services = deploy.services()
    return deploy.UrlMap({path: app(services) for path, app in ROUTES.items()})


class RightsApp:
    """WSGI application. ``rules``: the names of the rules that allow the caller what belongs to its project.

    ``consoles``: origins of the console proxies to which the page may connect. ``address``: the caller's, as other
    machines see it, or None.
    """

    def __init__(self, services: wsgi.ApiServices) -> None:
        self._policy = services.policy
        self._rules = sorted({rule.name for rule in policies.list_rules()})
        self._operations = {operation.kind: _view(operation) for operation in OPERATIONS.values()}
        self._consoles = consoles.origins(services.conf)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        context = environ[wsgi.CONTEXT]
        rules = [name for name in self._rules if self._policy.allows(context, name)]
        address = address_of(environ.get("REMOTE_ADDR", ""))
        content = {"rules": rules, "operations": self._operations, "consoles": self._consoles, "address": address}
        body = json.dumps(content).encode()
        response = webob.Response(body=body, content_type="application/json", charset="utf-8")
        return response(environ, start_response)


def address_of(caller: str) -> str | None:
    """Return the address from which a caller comes, or None if other machines do not see it there.

    ``caller``: what the server has noted, or the addresses that a proxy has forwarded, the first one first.
    """
    try:
        address = ip.parse(caller.partition(",")[0].strip())
    except ValueError:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    return None if address.is_loopback or address.is_link_local or address.is_unspecified else str(address)


def _view(operation: Operation) -> dict[str, Any]:
    """Return the vm states and task states that accept an operation; None stands for all of them."""
    return {
        "action": operation.action,
        "rule": operation.rule,
        "allowed": operation.allowed,
        "during": operation.during,
        "despite_lock": operation.despite_lock,
    }


#: The page's own paths, which are read with a token.
ROUTES: dict[str, Callable[[wsgi.ApiServices], deploy.App]] = {
    "/rights": RightsApp,
    "/daemons": DaemonsApp,
    "/configuration": ConfigurationApp,
    "/cloud-images": CloudImagesApp,
    "/events": EventsApp,
}
