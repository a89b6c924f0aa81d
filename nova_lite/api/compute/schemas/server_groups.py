"""``/os-server-groups``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

_HARD = ["anti-affinity", "affinity"]
_ALL = [*_HARD, "soft-anti-affinity", "soft-affinity"]


def _with_policies(allowed: list[str]) -> t.Schema:
    """The list of policies has just one."""
    policies = {"type": "array", "items": t.one_of(*allowed), "minItems": 1, "maxItems": 1}
    return t.wrapped("server_group", t.strict({"name": t.NAME, "policies": policies}, ("name", "policies")))


_WITH_POLICY: t.Schema = t.wrapped(
    "server_group",
    t.strict(
        {
            "name": t.NAME,
            "policy": t.one_of(*_ALL),
            "rules": t.strict({"max_server_per_host": t.POSITIVE}),
        },
        ("name", "policy"),
    ),
)

CREATE = Versioned(
    {
        1: _with_policies(_HARD),
        Change.SERVER_GROUP_SOFT_POLICIES: _with_policies(_ALL),
        Change.SERVER_GROUP_POLICY: _WITH_POLICY,
    }
)

_INDEX: t.Schema = {"all_projects": t.Q_ANY, "limit": t.Q_LIMIT, "offset": t.Q_LIMIT}
INDEX = t.query(_INDEX)
