"""Offers of disks to one other host, by a one-time token.

The source of a move offers some files of one instance. The destination gets the token in the conductor's command.
Whoever connects with the hosts' SSH key shows it, and reads these files alone: `nova_lite.cmd.send_disks` checks that.
The offer ends with the move: with the directory, at the next start of the guest, or after a day.

This module imports nothing of the daemons, because it is loaded for each file that is fetched.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time

#: File of an offer in the directory of an instance. It has a hash of the token.
OFFER = ".offer"
#: Seconds for which an offer stands.
LIFETIME = 86400.0
#: Environment variable that carries the token through SSH. Debian's sshd accepts names that begin with LC_.
VARIABLE = "LC_NOVA_LITE_OFFER"
#: Directory of the image cache, beside those of instances.
BASE = "_base"

_DIRECTORY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(@[A-Za-z0-9._-]{1,255})?(@aside)?")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_TOKEN = re.compile(r"[0-9a-f]{64}")


class OfferError(Exception):
    """Refusal of a file that is not offered. The text is for the operator."""


def make(directory: str, names: list[str], images: list[str]) -> tuple[str, bytes]:
    """Return a new token and the content of the offer's file. ``images``: cached images that the disks are based on."""
    token = secrets.token_hex(32)
    files = [f"{os.path.basename(directory)}/{name}" for name in names] + [f"{BASE}/{image}" for image in images]
    content = {"hash": _hash(token), "until": time.time() + LIFETIME, "files": files}
    return token, json.dumps(content).encode()


def value_of(directory: str, token: str) -> str:
    """Return the value of the environment variable for an offer."""
    return f"{os.path.basename(directory)}:{token}"


def check(instances_path: str, value: str, path: str) -> tuple[str, str]:
    """Return the directory and the name of a file that is offered. Raises `OfferError`.

    ``value``: of the environment variable. ``path``: as the destination requests it, relative to ``instances_path``.
    """
    name, _, token = value.partition(":")
    if not _DIRECTORY.fullmatch(name) or not _TOKEN.fullmatch(token):
        raise OfferError("no token of an offer")
    try:
        with open(os.path.join(instances_path, name, OFFER), "rb") as file:
            offer = json.load(file)
        known, until, files = str(offer["hash"]), float(offer["until"]), list(offer["files"])
    except FileNotFoundError:
        raise OfferError(f"{name} is not offered") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OfferError(f"the offer of {name} cannot be read: {error}") from None
    if not hmac.compare_digest(known, _hash(token)):
        raise OfferError(f"{name} is offered with another token")
    if not time.time() < until <= time.time() + LIFETIME:
        raise OfferError(f"the offer of {name} has ended")
    parent, _, plain = path.partition("/")
    if path not in files or parent not in (name, BASE) or not _FILE.fullmatch(plain):
        raise OfferError(f"{path!r} is not offered with {name}")
    return os.path.join(instances_path, parent), plain


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
