"""``/os-aggregates`` to be read: clients look for a host's aggregates when they show it. There are none."""

from __future__ import annotations

from nova_lite import exception
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.policies import hosts as policies


class Aggregates(Extension):
    alias = "os-aggregates"
    title = "Host aggregates"
    routes = (
        Route("GET", "/os-aggregates", "index"),
        Route("GET", "/os-aggregates/{aggregate_id}", "show"),
    )

    @declares(policies.AGGREGATES_INDEX, answer="aggregates")
    def index(self, req: Request) -> Answer:
        req.authorize(policies.AGGREGATES_INDEX)
        return Answer({"aggregates": []})

    @declares(policies.AGGREGATES_SHOW, answer="aggregate")
    def show(self, req: Request, aggregate_id: str) -> Answer:
        """A name in place of an id is 400: clients then look it up in the list."""
        req.authorize(policies.AGGREGATES_SHOW)
        if not aggregate_id.isdecimal():
            raise exception.ValidationError(detail=f"Invalid aggregate id {aggregate_id[:64]}: it must be an integer.")
        raise exception.NotFound(f"Aggregate {aggregate_id[:64]} could not be found.")
