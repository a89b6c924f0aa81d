"""Write the cloud into, or remove it from, a clouds.yaml that may hold other clouds.

    clouds.py add FILE NAME API_URL
    clouds.py add-user FILE NAME AUTH_URL USER [CACERT [REGION]]
                                                    (in the project of the same name; the password is on standard input)
    clouds.py remove FILE NAME

A password goes into ``secure.yaml`` beside the file, which clients read as well, and which only its owner may read.
Only the lines between two marks are ever touched, so that others' clouds keep their comments and order. A file that
cannot be edited that way (its clouds are not an indented block) is left alone, with an error.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import yaml

SECURE = "secure.yaml"

#: Region of a cloud whose operator has chosen none.
REGION = "RegionOne"

#: Setting for clouds without a catalog. Clients find no network API there, so openstacksdk's create_server must not
#: wait for a floating address.
NETWORKING = {"floating_ip_source": "none"}


def marks(name: str) -> tuple[str, str]:
    return f"# >>> {name}, written by devstack", f"# <<< {name}"


def cloud(api_url: str) -> dict[str, Any]:
    """Return settings of a cloud without Keystone: a token with the user's name, and the compute API's URL."""
    return {
        "auth_type": "admin_token",
        "auth": {"endpoint": api_url, "token": "admin:admin"},
        "compute_endpoint_override": api_url,
        **NETWORKING,
    }


def cloud_of_user(auth_url: str, user: str, cacert: str | None = None, region: str = REGION) -> dict[str, Any]:
    """Return settings of a cloud with an identity service, without the password. ``cacert``: file of its authority."""
    return {
        **({"cacert": cacert} if cacert else {}),
        "auth_type": "password",
        "region_name": region,
        "auth": {
            "auth_url": auth_url,
            "username": user,
            "project_name": user,
            "user_domain_id": "default",
            "project_domain_id": "default",
        },
    }


def without_block(text: str, name: str) -> str:
    first, last = marks(name)
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        inside = inside or line.strip() == first
        if not inside:
            kept.append(line)
        inside = inside and line.strip() != last
    return "".join(kept)


def with_block(text: str, name: str, settings: dict[str, Any]) -> str:
    """Return ``text`` with the cloud as the first one of its ``clouds:``."""
    if text and not text.endswith("\n"):
        text += "\n"
    lines = text.splitlines(keepends=True)
    heads = [number for number, line in enumerate(lines) if line.rstrip() == "clouds:"]
    if not heads:
        lines += ["clouds:\n"]
        heads = [len(lines) - 1]
    after = heads[0] + 1
    indent = next(
        (" " * (len(line) - len(line.lstrip())) for line in lines[after:] if line.strip() and line[0] == " "), "  "
    )
    first, last = marks(name)
    block = yaml.safe_dump({name: settings}, sort_keys=False).splitlines()
    lines[after:after] = [f"{indent}{line}\n" for line in (first, *block, last)]
    return "".join(lines)


def clouds_of(text: str) -> dict[str, Any]:
    return dict((yaml.safe_load(text) or {}).get("clouds") or {})


def secure_file(path: str) -> str:
    return os.path.join(os.path.dirname(path), SECURE)


def write(path: str, text: str) -> None:
    """Write a file atomically with its existing permissions; those of secrets are tightened."""
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
    if os.path.basename(path) == SECURE:
        mode &= 0o600
    handle, temporary = tempfile.mkstemp(dir=directory)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(handle, mode)
    os.replace(temporary, path)


def put(path: str, name: str, settings: dict[str, Any]) -> None:
    text = read(path)
    rest = without_block(text, name)
    if name in clouds_of(rest):
        sys.exit(f"{path} has a cloud {name} that devstack did not write; rename or remove it.")
    expected = {name: settings, **clouds_of(rest)}
    result = with_block(rest, name, settings)
    try:
        right = clouds_of(result) == expected
    except yaml.YAMLError:
        right = False
    if not right:
        sys.exit(f"{path} cannot be edited safely: add the cloud {name} by hand, or make its clouds an indented block.")
    write(path, result)


def add(path: str, name: str, api_url: str) -> None:
    take_out(secure_file(path), name)
    put(path, name, cloud(api_url))


def add_user(path: str, name: str, *of_cloud: str) -> None:
    put_user(path, name, cloud_of_user(*of_cloud), sys.stdin.readline().rstrip("\n"))


def put_user(path: str, name: str, settings: dict[str, Any], password: str) -> None:
    if not password:  # Whoever was to say it may have been killed.
        sys.exit(f"{path} is left as it is: there is no password for {settings['auth']['username']}.")
    put(path, name, settings)
    put(secure_file(path), name, {"auth": {"password": password}})


def remove(path: str, name: str) -> None:
    take_out(path, name)
    take_out(secure_file(path), name)


def take_out(path: str, name: str) -> None:
    """Remove the cloud from the file, and the file if nothing else is in it."""
    text = read(path)
    if marks(name)[0] not in text:
        return
    rest = without_block(text, name)
    if rest.strip() in ("", "clouds:"):
        os.unlink(path)
    else:
        write(path, rest)


def read(path: str) -> str:
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {"add": add, "add-user": add_user, "remove": remove}
    verbs[sys.argv[1]](*sys.argv[2:])
