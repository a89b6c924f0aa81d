"""The page docs/reference/api.md, made from the same route entries as the OpenAPI document."""

from __future__ import annotations

import itertools

from nova_lite import policies
from nova_lite.api.http import microversions
from nova_lite.api.http.inventory import RouteEntry, route_entries
from nova_lite.policies import base

_HEAD = """# REST API

This page lists all routes of the compute API. `nova-lite-manage api reference` generates it from the routes and
policies. [API behaviour](api-behaviour.md) describes each resource. The schemas are in the OpenAPI document
(`GET /openapi.json`, or `nova-lite-manage api openapi`).

`{project_id}` may precede each path. It must be the project of the token. An operation may check further rules for
parts of its work. `nova-lite-manage policy list` lists all rules.

A title names the package of its routes, unless that is nova_lite. Without that package they are a 404.
`nova_lite_conformance` is in `conformance/` of the repository.
"""
_COLUMNS = "| operation | versions | rule | allowed for |\n|---|---|---|---|"
_REFUSED = """501: this cloud does not offer it. 410: Nova has removed it.

| operation | versions | answer |
|---|---|---|"""
_WHO = {
    base.ADMIN: "admin",
    base.MEMBER: "member of the project",
    base.READER: "reader of the project",
    base.OWNER: "the user, admin",
    base.ANYONE: "any user with a token",
}


def markdown() -> str:
    """Return the page."""
    entries = sorted(route_entries(), key=lambda entry: (not entry.served, _title(entry)))
    parts = [_HEAD]
    for title, group in itertools.groupby(entries, key=_title):
        rows = list(group)
        parts.append(f"## {title}\n\n{_COLUMNS if rows[0].served else _REFUSED}\n{''.join(map(_line, rows))}")
    return "\n".join(parts)


def _title(entry: RouteEntry) -> str:
    """Return the title of an entry's section. Sections of other packages name their package."""
    title = entry.resource if entry.served else "Not served"
    return title if entry.package == "nova_lite" else f"{title} ({entry.package})"


def _line(entry: RouteEntry) -> str:
    declared = entry.declared
    if not entry.served:
        return f"| {_name(entry)} | {_versions(entry)} | {declared.status.at(entry.newest)} |\n"
    return f"| {_name(entry)} | {_versions(entry)} | `{declared.policy}` | {who_may(declared.policy)} |\n"


def who_may(rule: str) -> str:
    """Return a description of the callers that a rule allows by default."""
    check = next(default.check_str for default in policies.list_rules() if default.name == rule)
    return _WHO.get(check, check)


def _name(entry: RouteEntry) -> str:
    return f"`{entry.method} {entry.path}`" + (f" `{entry.action}`" if entry.action else "")


def _versions(entry: RouteEntry) -> str:
    major = microversions.MAXIMUM.major
    since = f"{major}.{entry.since} on" if entry.since > microversions.MINIMUM.minor else ""
    until = f"to {major}.{entry.until}" if entry.until is not None else ""
    return f"{since.removesuffix(' on')} {until}" if since and until else since or until
