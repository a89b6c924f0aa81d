"""Rules of key pairs, which belong to users."""

from __future__ import annotations

from nova_lite.policies.base import OWNER, rule

INDEX = "os_compute_api:os-keypairs:index"
SHOW = "os_compute_api:os-keypairs:show"
CREATE = "os_compute_api:os-keypairs:create"
DELETE = "os_compute_api:os-keypairs:delete"

RULES = [
    rule(INDEX, OWNER, "List a user's key pairs", "GET /os-keypairs"),
    rule(SHOW, OWNER, "Show a key pair", "GET /os-keypairs/{name}"),
    rule(CREATE, OWNER, "Generate or import a key pair", "POST /os-keypairs"),
    rule(DELETE, OWNER, "Delete a key pair", "DELETE /os-keypairs/{name}"),
]
