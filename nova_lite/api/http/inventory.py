"""List of all routes and actions of the compute API. The OpenAPI document and the reference page are made from it."""

from __future__ import annotations

from typing import NamedTuple

from nova_lite.api.http import microversions, router, wsgi
from nova_lite.api.http.microversions import Version


class RouteEntry(NamedTuple):
    """A route, or an action of a route. ``resource`` is the title of its extension, ``package`` its Python package.

    It exists in the minor versions ``since`` to ``until`` (None: no end).
    """

    method: str
    path: str
    action: str | None
    resource: str
    package: str
    since: int
    until: int | None
    declared: wsgi.Declaration

    @property
    def served(self) -> bool:
        return self.declared.policy != wsgi.NOT_SERVED

    @property
    def newest(self) -> Version:
        """The newest announced version that has the route."""
        maximum = microversions.MAXIMUM
        return maximum if self.until is None else min(maximum, Version(maximum.major, self.until))


def route_entries() -> list[RouteEntry]:
    """Return the routes of all installed extensions, sorted by path, verb, and action, the newest version first."""
    entries = [
        RouteEntry(
            route.method,
            route.path,
            route.action,
            extension.title,
            extension.__module__.partition(".")[0],
            route.since,
            route.until,
            route.declaration(extension),
        )
        for extension in router.extension_classes()
        for route in extension.routes
    ]
    return sorted(entries, key=lambda entry: (entry.path, entry.method, entry.action or "", -entry.since))
