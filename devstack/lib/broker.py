"""Definitions of broker accounts for rabbitmqctl import_definitions: ``broker.py VHOST PREFIX SECRETS``.

Each line of standard input is NAME ROLE HOST. The account PREFIX-NAME gets the permissions of that daemon and the
password of the file broker-NAME in SECRETS, of which only a salted hash is written.
"""

from __future__ import annotations

import json
import pathlib
import sys

from nova_lite.rpc.broker import Account, definitions


def account(prefix: str, secrets: pathlib.Path, line: str) -> Account:
    name, role, host = line.split()
    return Account(user=f"{prefix}-{name}", password=(secrets / f"broker-{name}").read_text(), role=role, host=host)


if __name__ == "__main__":
    vhost, prefix, secrets = sys.argv[1:]
    lines = sys.stdin.read().splitlines()
    json.dump(definitions(vhost, [account(prefix, pathlib.Path(secrets), line) for line in lines]), sys.stdout)
