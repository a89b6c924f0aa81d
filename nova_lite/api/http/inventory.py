"""Every route and action of the compute API, as rows: what its document and its reference are made from."""

from __future__ import annotations

from typing import NamedTuple

from nova_lite.api.http import microversions, router, wsgi
from nova_lite.api.http.microversions import Version


class RouteEntry(NamedTuple):
    """One route, or one action of a route (``action`` is then its name). ``resource``: the extension's title.

    Served by the minor versions ``since`` to ``until`` (None: there is no end).
    """

    method: str
    path: str
    action: str | None
    resource: str
    since: int
    until: int | None
    declared: wsgi.Declaration

    @property
    def served(self) -> bool:
        return self.declared.policy != wsgi.NOT_SERVED

    @property
    def newest(self) -> Version:
        """The last announced version that has it."""
        maximum = microversions.MAXIMUM
        return maximum if self.until is None else min(maximum, Version(maximum.major, self.until))


def route_entries() -> list[RouteEntry]:
    """Of all installed extensions; by path, verb, action, newest first."""
    rows = [
        RouteEntry(row.method, row.path, row.action, made.title, row.since, row.until, row.declaration(made))
        for made in router.extension_classes()
        for row in made.routes
    ]
    return sorted(rows, key=lambda row: (row.path, row.method, row.action or "", -row.since))
