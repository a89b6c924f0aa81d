"""``docs/api-reference.md``, made from the same rows as the OpenAPI document."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from nova_lite import policies
from nova_lite.api.http import microversions
from nova_lite.api.http.inventory import RouteEntry, entries
from nova_lite.policies import base

_HEAD = """# Reference of the REST API

Made by `nova-lite-manage api reference` from the routes and policies. What is special about a resource is in
[api.md](api.md), the schemas are in the OpenAPI document (`GET /openapi.json`, `nova-lite-manage api openapi`).
`{project_id}` may stand in front of each path; it has to be the token's own project. An operation may ask further rules
for parts of what it does; `nova-lite-manage policy list` has them all.
"""
_COLUMNS = "| operation | versions | rule | who may |\n|---|---|---|---|"
_WHO = {
    base.ADMIN: "admin",
    base.MEMBER: "member of the project",
    base.READER: "reader of the project",
    base.OWNER: "the user, admin",
    base.ANYONE: "anybody with a token",
}


def markdown() -> str:
    rows = sorted(entries(), key=lambda row: (not row.served, row.resource if row.served else ""))
    parts = [_HEAD]
    for resource, group in itertools.groupby((row for row in rows if row.served), key=lambda row: row.resource):
        parts.append(f"## {resource}\n\n{_COLUMNS}\n" + "".join(_lines(group)))
    refused = "".join(
        f"| {_name(row)} | {_versions(row)} | {row.declared.status.at(row.newest)} |\n"
        for row in rows
        if not row.served
    )
    parts.append(
        "## Not served\n\n501: this cloud has it not; 410: Nova has it no more.\n\n"
        f"| operation | versions | answer |\n|---|---|---|\n{refused}"
    )
    return "\n".join(parts)


def _lines(rows: Iterable[RouteEntry]) -> Iterator[str]:
    for row in rows:
        rule = row.declared.policy
        yield f"| {_name(row)} | {_versions(row)} | `{rule}` | {who_may(rule)} |\n"


def who_may(rule: str) -> str:
    """Who passes a rule by default."""
    check = next(each.check_str for each in policies.list_rules() if each.name == rule)
    return _WHO.get(check, check)


def _name(row: RouteEntry) -> str:
    return f"`{row.method} {row.path}`" + (f" `{row.action}`" if row.action else "")


def _versions(row: RouteEntry) -> str:
    major = microversions.MAXIMUM.major
    since = f"{major}.{row.since} on" if row.since > microversions.MINIMUM.minor else ""
    until = f"to {major}.{row.until}" if row.until is not None else ""
    return f"{since.removesuffix(' on')} {until}" if since and until else since or until
