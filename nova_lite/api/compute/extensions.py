"""``/extensions``: the parts that this API is made of."""

from __future__ import annotations

from typing import Any

from nova_lite import exception
from nova_lite.api import router
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.policies import catalogue as policies


class Extensions(Extension):
    alias = "extensions"
    title = "Extensions"
    routes = (
        Route("GET", "/extensions", "index"),
        Route("GET", "/extensions/{id}", "show"),
    )

    @declares(policies.EXTENSIONS, answer="extensions")
    def index(self, req: Request) -> Answer:
        req.authorize(policies.EXTENSIONS)
        return Answer({"extensions": [_view(plugin) for plugin in router.extension_classes()]})

    @declares(policies.EXTENSIONS, answer="extension")
    def show(self, req: Request, id: str) -> Answer:
        req.authorize(policies.EXTENSIONS)
        for plugin in router.extension_classes():
            if plugin.alias == id:
                return Answer({"extension": _view(plugin)})
        raise exception.NotFound()


def _view(plugin: type[Extension]) -> dict[str, Any]:
    return {
        "alias": plugin.alias,
        "name": plugin.title,
        "description": plugin.title,
        "namespace": "",
        "updated": "2014-12-03T00:00:00Z",
        "links": [],
    }
