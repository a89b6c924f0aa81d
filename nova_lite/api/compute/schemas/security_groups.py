"""Bodies about security groups."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t

#: Spaces at the ends do not count, and there is something besides.
_NAME: t.Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"\S"}
_DESCRIPTION: t.Schema = {"type": ["string", "null"], "maxLength": 255}
_NUMBER: t.Schema = {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]{1,5}$", "maximum": 99999}
_REFERENCE: t.Schema = {"type": ["string", "null"], "maxLength": 255}

CREATE = t.wrapped("security_group", t.strict({"name": _NAME, "description": _DESCRIPTION}, ("name",)))
UPDATE = t.wrapped("security_group", t.strict({"name": _NAME, "description": _DESCRIPTION}))
RULE = t.wrapped(
    "security_group_rule",
    t.strict(
        {
            "parent_group_id": {"type": "string", "minLength": 1, "maxLength": 255},
            "ip_protocol": {"type": ["string", "null"], "maxLength": 16},
            "from_port": _NUMBER,
            "to_port": _NUMBER,
            "cidr": {"type": ["string", "null"], "maxLength": 64},
            "group_id": _REFERENCE,
        },
        ("parent_group_id",),
    ),
)
_OF_SERVER = t.strict({"name": _NAME}, ("name",))
ADD = t.wrapped("addSecurityGroup", _OF_SERVER)
REMOVE = t.wrapped("removeSecurityGroup", _OF_SERVER)
INDEX = t.loose_query({"limit": t.Q_LIMIT, "offset": t.Q_LIMIT, "all_tenants": t.Q_ANY})
