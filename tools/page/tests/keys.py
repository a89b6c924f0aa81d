"""Print the public lines of OpenSSH's private keys. Standard input has their texts, as a list in JSON."""

from __future__ import annotations

import json
import sys

from cryptography.hazmat.primitives import serialization


def public_line(text: str) -> str:
    key = serialization.load_ssh_private_key(text.encode(), None)
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return line.decode()


if __name__ == "__main__":
    print(json.dumps([public_line(text) for text in json.load(sys.stdin)]))
