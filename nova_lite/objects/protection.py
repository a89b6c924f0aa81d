"""Protection of servers: whether, when and how often a server of a lost host is built again elsewhere.

The settings are metadata of the server, extra specs of its flavor, or properties of its image. The first of them that
has a setting decides, one setting at a time. For the rest the project's default counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from nova_lite.base import exceptions

PREFIX = "ha:"

#: Images name their properties with underscores, too.
IMAGE_PREFIX = "ha_"

ALWAYS, NEVER = "always", "never"
KEEP, REBUILD = "keep", "rebuild"

#: Pattern and description of the values of each setting.
SETTINGS: dict[str, tuple[str, str]] = {
    "restart": ("always|never", "always or never"),
    "priority": ("[0-9]{1,3}", "a number from 0 to 999; servers with a higher one come first"),
    "delay": ("[0-9]{1,5}", "a number of seconds from 0 to 99999"),
    "attempts": ("[1-9][0-9]?", "a number from 1 to 99"),
    "local-disk": ("keep|rebuild", "keep or rebuild; rebuild accepts that data on local disks are lost"),
}


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """Protection of one server. ``source``: what decided ``restart``. ``rebuild``: loss of local disks is accepted."""

    restart: bool = False
    priority: int = 100
    delay: int = 0
    attempts: int = 3
    rebuild: bool = False
    source: str = "default"


def check(settings: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if a setting of protection is unknown, or has a value that is none of its own."""
    for key, value in settings.items():
        if key.startswith(PREFIX):
            check_one(key, str(value))


def check_image(properties: Mapping[str, str]) -> None:
    """Raise `InvalidInput` like `check`, also for properties with underscores."""
    names = {name.replace("-", "_"): name for name in SETTINGS}
    for key, value in properties.items():
        if key.startswith(IMAGE_PREFIX):
            name = key.removeprefix(IMAGE_PREFIX)
            check_one(PREFIX + names.get(name, name), value)
    check(properties)


def check_one(key: str, value: str) -> None:
    """Raise `InvalidInput` for an unknown setting of protection, or a wrong value."""
    known = SETTINGS.get(key.removeprefix(PREFIX))
    if known is None:
        names = ", ".join(PREFIX + name for name in SETTINGS)
        raise exceptions.InvalidInput(reason=f"there is no setting {key}. Settings of protection are {names}")
    pattern, description = known
    if re.fullmatch(pattern, value) is None:
        raise exceptions.InvalidInput(reason=f"{key}={value} is wrong: the value is {description}")


def of_server(
    metadata: Mapping[str, Any], flavor: Mapping[str, Any], image: Mapping[str, Any], by_default: bool
) -> Protection:
    """Return the protection of a server. ``by_default``: its project is protected. Values that are wrong do not count:
    images of another service are not checked here."""
    sources = (("server", metadata, PREFIX), ("flavor", flavor, PREFIX), ("image", image, PREFIX))
    found: dict[str, tuple[str, str]] = {}
    for source, settings, prefix in (*sources, ("image", image, IMAGE_PREFIX)):
        for name, (pattern, _) in SETTINGS.items():
            key = prefix + (name if prefix == PREFIX else name.replace("-", "_"))
            value = settings.get(key)
            if name not in found and value is not None and re.fullmatch(pattern, str(value)):
                found[name] = (str(value), source)
    values = {name: int(found[name][0]) for name in ("priority", "delay", "attempts") if name in found}
    restart, source = found.get("restart", (ALWAYS, "project") if by_default else (NEVER, "default"))
    rebuild = found.get("local-disk", (KEEP, ""))[0] == REBUILD
    return Protection(restart=restart == ALWAYS, rebuild=rebuild, source=source, **values)
