"""``/extensions``: the parts that this API is made of."""

from __future__ import annotations

from typing import Any

from nova_lite import exception
from nova_lite.api import router
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.policies import extensions as policies


class Extensions(Extension):
    alias = "extensions"
    title = "Extensions"
    routes = (
        Route("GET", "/extensions", "index"),
        Route("GET", "/extensions/{id}", "show"),
    )

    @declares(policies.EXTENSIONS, answer="extensions")
    def index(self, req: Request) -> Answer:
        return Answer({"extensions": [_view(alias, title) for alias, title in _titles().items()]})

    @declares(policies.EXTENSIONS, answer="extension")
    def show(self, req: Request, id: str) -> Answer:
        title = _titles().get(id)
        if title is None:
            raise exception.NotFound()
        return Answer({"extension": _view(id, title)})


def _titles() -> dict[str, str]:
    """By alias."""
    return {alias: plugin.title for plugin in router.extension_classes() for alias in (plugin.alias, *plugin.includes)}


def _view(alias: str, title: str) -> dict[str, Any]:
    return {
        "alias": alias,
        "name": title,
        "description": title,
        "namespace": "",
        "updated": "2014-12-03T00:00:00Z",
        "links": [],
    }
