"""Definitions of broker accounts for rabbitmqctl import_definitions: ``broker.py VHOST PREFIX SECRETS``.

Each line of standard input is NAME ROLE HOST. The account PREFIX-NAME gets the permissions of that daemon and the
password of the file broker-NAME in SECRETS, of which only a salted hash is written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import sys
from typing import Any

from nova_lite.rpc import broker


def hashed(password: str) -> str:
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def definitions(vhost: str, prefix: str, secrets: pathlib.Path, lines: list[str]) -> dict[str, list[dict[str, Any]]]:
    made: dict[str, list[dict[str, Any]]] = {"users": [], "permissions": [], "topic_permissions": []}
    for line in lines:
        name, role, host = line.split()
        found, user = broker.permissions(role, host), f"{prefix}-{name}"
        password = (secrets / f"broker-{name}").read_text()
        algorithm = "rabbit_password_hashing_sha256"
        made["users"].append(
            {"name": user, "password_hash": hashed(password), "hashing_algorithm": algorithm, "tags": []}
        )
        who = {"user": user, "vhost": vhost}
        made["permissions"].append(who | {"configure": found.configure, "write": found.write, "read": found.read})
        made["topic_permissions"].append(
            who | {"exchange": broker.EXCHANGE, "write": found.topic_write, "read": found.topic_read}
        )
    return made


if __name__ == "__main__":
    vhost, prefix, secrets = sys.argv[1:]
    json.dump(definitions(vhost, prefix, pathlib.Path(secrets), sys.stdin.read().splitlines()), sys.stdout)
