"""Base of the volume API's resources: lists, and the actions of one thing.

``@action`` declares an action of the method below, as ``@route`` declares a URL. All actions of a thing have one URL,
whose handler is `VolumeResource.act`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from nova_lite.api.audit import notes
from nova_lite.api.http import bodies
from nova_lite.api.http.rest import ServiceRequest, ServiceResource
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests
from nova_lite.api.volume.views import View
from nova_lite.base import exceptions

H = TypeVar("H", bound=Callable[..., Any])
Item = TypeVar("Item", bound=listing.HasId)


class Action(NamedTuple):
    """Entry of a resource's actions. ``policy``: a rule besides that of the URL. ``body``: the object of the action;
    None: it takes any value. Others as in `ServiceRoute`.
    """

    handler: str
    policy: str | None
    body: type[bodies.Body] | None
    response: str | None
    status: int


def action(
    name: str,
    policy: str | None = None,
    *,
    body: type[bodies.Body] | None = None,
    response: str | None = None,
    status: int = 202,
) -> Callable[[H], H]:
    """Declare an action of the method below, which takes the request, the thing's id, and the body if it has one."""

    def mark(handler: H) -> H:
        made = Action(getattr(handler, "__name__", ""), policy, body, response, status)
        handler.actions = {name: made, **getattr(handler, "actions", {})}  # type: ignore[attr-defined]
        return handler

    return mark


class VolumeResource(ServiceResource):
    """Resource of the volume API."""

    #: Actions by the keys of their bodies.
    actions: dict[str, Action]

    def __init_subclass__(cls) -> None:
        cls.actions = {
            name: made for method in vars(cls).values() for name, made in getattr(method, "actions", {}).items()
        }

    def act(self, req: ServiceRequest, id: str) -> Response:
        """Run the action that is the body's one key."""
        name, sent = requests.action(req)
        made = self.actions.get(name)
        if made is None:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        if made.body is not None:
            requests.require_known(sent, bodies.names(made.body))
        notes.of(req.environ).action = name
        if made.policy is not None:
            req.authorize(made.policy)
        given = () if made.body is None else (bodies.read(made.body, sent),)
        result = getattr(self, made.handler)(req, id, *given)
        return Response(result if made.response is None else {made.response: result}, made.status)

    def listed(
        self, req: ServiceRequest, fetch: Callable[..., Sequence[Item]], view: Callable[[Item], View]
    ) -> Response:
        """Return the response to a list request: one page, a link to the next one, and the number of all."""
        key, query = req.service_route.response, listing.query_of(req, self.conf.api.max_limit)
        found = fetch(req.context, **query)
        last = found[-1].id if found and len(found) == query["limit"] else None
        links = listing.next_link(req, f"{key}_links", last)
        return Response({key: [view(item) for item in found], **links, **listing.count(req, query, found, fetch)})
