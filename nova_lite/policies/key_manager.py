"""Rules of the key manager service, with Barbican's names."""

from __future__ import annotations

from nova_lite.policies.base import MEMBER, READER, rule

_SECRET, _CONTAINER = "/v1/secrets/{id}", "/v1/containers/{id}"
_METADATA = f"{_SECRET}/metadata"

SECRETS = rule("secrets:get", READER, "List the secrets of the project", "GET /v1/secrets")
SECRET_CREATE = rule("secrets:post", MEMBER, "Create a secret", "POST /v1/secrets")
SECRET_GET = rule(
    "secret:get",
    READER,
    "Show a secret without its payload",
    f"GET {_SECRET}",
    f"GET {_SECRET}/acl",
    f"GET {_METADATA}",
    f"GET {_METADATA}/{{key}}",
)
SECRET_DECRYPT = rule("secret:decrypt", MEMBER, "Read the payload of a secret", f"GET {_SECRET}/payload")
SECRET_UPDATE = rule("secret:put", MEMBER, "Give a secret its payload", f"PUT {_SECRET}")
SECRET_DELETE = rule("secret:delete", MEMBER, "Delete a secret", f"DELETE {_SECRET}")
METADATA = rule(
    "secret_meta:put",
    MEMBER,
    "Change the metadata of a secret",
    f"PUT {_METADATA}",
    f"POST {_METADATA}",
    f"PUT {_METADATA}/{{key}}",
    f"DELETE {_METADATA}/{{key}}",
)
CONTAINERS = rule("containers:get", READER, "List the containers of the project", "GET /v1/containers")
CONTAINER_CREATE = rule("containers:post", MEMBER, "Create a container of secrets", "POST /v1/containers")
CONTAINER_GET = rule("container:get", READER, "Show a container", f"GET {_CONTAINER}", f"GET {_CONTAINER}/acl")
CONTAINER_DELETE = rule("container:delete", MEMBER, "Delete a container", f"DELETE {_CONTAINER}")
