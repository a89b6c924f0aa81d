"""Rules of key pairs, which belong to users."""

from __future__ import annotations

from nova_lite.policies.base import OWNER, Rules

_keypairs = Rules("os_compute_api:os-keypairs")

INDEX = _keypairs("index", OWNER, "List a user's key pairs", "GET /os-keypairs")
SHOW = _keypairs("show", OWNER, "Show a key pair", "GET /os-keypairs/{name}")
CREATE = _keypairs("create", OWNER, "Generate or import a key pair", "POST /os-keypairs")
DELETE = _keypairs("delete", OWNER, "Delete a key pair", "DELETE /os-keypairs/{name}")
