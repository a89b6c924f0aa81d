"""The page docs/reference/api.md, made from the same route entries as the OpenAPI document."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

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
"""
_COLUMNS = "| operation | versions | rule | allowed for |\n|---|---|---|---|"
_WHO = {
    base.ADMIN: "admin",
    base.MEMBER: "member of the project",
    base.READER: "reader of the project",
    base.OWNER: "the user, admin",
    base.ANYONE: "any user with a token",
}


def markdown() -> str:
    """Return the page."""
    entries = sorted(route_entries(), key=lambda entry: (not entry.served, entry.resource if entry.served else ""))
    parts = [_HEAD]
    for resource, group in itertools.groupby(
        (entry for entry in entries if entry.served), key=lambda entry: entry.resource
    ):
        parts.append(f"## {resource}\n\n{_COLUMNS}\n" + "".join(_lines(group)))
    refused = "".join(
        f"| {_name(entry)} | {_versions(entry)} | {entry.declared.status.at(entry.newest)} |\n"
        for entry in entries
        if not entry.served
    )
    parts.append(
        "## Not served\n\n501: this cloud does not offer it. 410: Nova has removed it.\n\n"
        f"| operation | versions | answer |\n|---|---|---|\n{refused}"
    )
    return "\n".join(parts)


def _lines(entries: Iterable[RouteEntry]) -> Iterator[str]:
    for entry in entries:
        rule = entry.declared.policy
        yield f"| {_name(entry)} | {_versions(entry)} | `{rule}` | {who_may(rule)} |\n"


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
