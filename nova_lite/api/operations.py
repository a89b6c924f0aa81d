"""Everything that can be asked of the compute API, as rows: what its document and its reference are made from."""

from __future__ import annotations

from typing import NamedTuple

from nova_lite.api import microversions, router, wsgi
from nova_lite.api.microversions import Version


class Operation(NamedTuple):
    """One route, or one action of a route (``action`` is then its name). ``resource``: the extension's title.

    Served by the minor versions ``since`` to ``until`` (None: there is no end). ``declared`` is None when the handler
    says nothing about itself.
    """

    method: str
    path: str
    action: str | None
    resource: str
    since: int
    until: int | None
    declared: wsgi.Declaration | None

    @property
    def served(self) -> bool:
        return self.declared is None or self.declared.policy != wsgi.NOT_SERVED

    @property
    def newest(self) -> Version:
        """The last announced version that has it."""
        maximum = microversions.MAXIMUM
        return maximum if self.until is None else min(maximum, Version(maximum.major, self.until))


def operations() -> list[Operation]:
    """Of all installed extensions; by path, verb, action, newest first."""
    rows = []
    for extension in router.extension_classes():
        for route in extension.routes:
            declared = wsgi.declaration_of(getattr(extension, route.handler))
            rows.append(
                Operation(route.method, route.path, None, extension.title, route.since, route.until, declared),
            )
        for action in extension.actions:
            declared = wsgi.declaration_of(getattr(extension, action.handler))
            path = f"/{action.resource}/{{id}}/action"
            rows.append(Operation("POST", path, action.name, extension.title, action.since, action.until, declared))
    return sorted(rows, key=lambda row: (row.path, row.method, row.action or "", -row.since))
