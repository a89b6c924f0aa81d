"""Controllers of one cloud: their list, and the files of this controller that name the others.

The list is a part of the signed list of trusted keys. The registrar of each controller writes it, and calls `apply`,
by which the load balancer, the database and the names of brokers have a new controller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nova_lite.base import exceptions
from nova_lite.cmd.setup import balancer, broker, galera, machine
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.objects import Controller
from nova_lite.rpc import controllers
from nova_lite.rpc.keys import API, CONSOLE

#: Settings of this controller that the set-up of a cloud with several controllers made.
LOCAL = CONFIGURATION / "cluster.json"
#: Keys of messages, with the list of the controllers.
KEYS = CONFIGURATION / "keys"
#: Master keys of encrypted volumes. All controllers have the same.
VOLUME_KEYS = CONFIGURATION / "volume-keys"
#: User of the conductor, who owns them.
CONDUCTOR = "nova-lite-conductor"

HOSTS = Path("/etc/hosts")
HOSTS_MARKS = ("# >>> nova-lite controllers", "# <<< nova-lite controllers")
#: Files of a controller that the others have as well, with their own addresses and accounts.
FILES = (
    *(f"{name}.conf" for name in ("nova-lite", "api", "conductor", "scheduler", "novncproxy", "serialproxy")),
    "spicehtml5proxy.conf",
    "manage.conf",
    "registrar.conf",
    "api-paste.ini",
    "policy.yaml",
)
#: Files of a machine with one role. No other daemon's secret is in them.
FRONT_END_FILES = {
    API: ("nova-lite.conf", "api.conf", "api-paste.ini", "policy.yaml"),
    CONSOLE: ("nova-lite.conf", "novncproxy.conf", "serialproxy.conf", "spicehtml5proxy.conf"),
}
_SECTION = re.compile(r"\[([^\]]+)\]")
_SETTING = re.compile(r"(\w+)\s*[=:]\s*(.*)")


class Local(msgspec.Struct, kw_only=True):
    """Settings of this controller. ``has_database``: it has a node of Galera. ``interface``: the address's.

    ``proxy_protocol``: load balancers name their clients to the APIs. Clouds that an older version set up do not have
    it.
    """

    host: str
    address: str
    interface: str
    virtual_address: str
    has_database: bool
    proxy_protocol: bool = False


class Secrets(msgspec.Struct, kw_only=True):
    """Secrets of the cloud for a controller that joins.

    ``files``: its configuration by name, as ``address``, the controller that sends them, has it. ``cookie``: of the
    brokers. ``volume_keys``: the file of master keys of encrypted volumes, if the cloud has one.
    """

    address: str
    virtual_address: str
    has_database: bool
    cookie: str
    files: dict[str, str]
    members: list[Controller]
    proxy_protocol: bool = False
    volume_keys: str = ""


class FrontEndSettings(msgspec.Struct, kw_only=True):
    """Settings of the cloud for a machine with one role, without an account at the broker.

    ``files``: its configuration by name, as ``address``, the controller that sends them, has it. ``virtual_address``:
    empty in a cloud with one controller.
    """

    address: str
    virtual_address: str
    files: dict[str, str]
    members: list[Controller]


def local() -> Local | None:
    """Return this controller's settings; None if its cloud has only one. Raises `ConfigurationError`."""
    return controllers.read(LOCAL, Local)


def write_local(made: Local) -> None:
    machine.replace(LOCAL, msgspec.json.format(msgspec.json.encode(made)).decode() + "\n", mode=0o644)


def write_units(found: Local) -> None:
    """Write this version's settings for the units of broker, database and load balancer."""
    balancer.set_up(found.address, found.has_database)
    broker.write_unit_settings()
    if found.has_database:
        galera.write_unit_settings()


# --- secrets for another controller


def secrets(directory: str) -> Secrets:
    """Return what a further controller needs. ``directory``: of keys. Raises `ConfigurationError`."""
    found, listed = local(), controllers.members(directory)
    if found is None or not listed:
        raise exceptions.ConfigurationError(
            reason="this cloud has one controller: set it up with --virtual-address first."
        )
    return Secrets(
        address=found.address,
        virtual_address=found.virtual_address,
        has_database=found.has_database,
        cookie=broker.cookie(),
        files={name: (CONFIGURATION / name).read_text() for name in FILES if (CONFIGURATION / name).exists()},
        members=listed,
        proxy_protocol=found.proxy_protocol,
        volume_keys=_volume_keys(),
    )


def front_end_settings(directory: str, role: str) -> FrontEndSettings:
    """Return what a machine with one role needs. ``directory``: of keys. Raises `ConfigurationError`."""
    found = local()
    address = machine.setting(CONFIGURATION / "nova-lite.conf", "DEFAULT", "my_ip")
    if not address:
        raise exceptions.ConfigurationError(reason=f"{CONFIGURATION}/nova-lite.conf: [DEFAULT] my_ip is not set.")
    # The account is another one: what a front end gets names none of this machine.
    account = {("DEFAULT", "transport_url"): ""}
    sent = {}
    for name in FRONT_END_FILES[role]:
        path = CONFIGURATION / name
        if path.exists():
            text = path.read_text()
            sent[name] = adapted(text, account, address, address) if name.endswith(".conf") else text
    return FrontEndSettings(
        address=address,
        virtual_address=found.virtual_address if found else "",
        files=sent,
        members=controllers.members(directory),
    )


def _volume_keys() -> str:
    # The registrar, which calls this, reads files of root alone. These are the conductor's.
    return machine.run("cat", str(VOLUME_KEYS), user=CONDUCTOR) if VOLUME_KEYS.exists() else ""


def adapted(text: str, values: dict[tuple[str, str], str], before: str, after: str) -> str:
    """Return another controller's file for this one: with ``values`` by section and name, and this one's address.

    All other lines stay, with comments and an operator's changes.
    """
    lines, section, missing = [], "", dict(values)
    for line in text.splitlines():
        if match := _SECTION.fullmatch(line.strip()):
            section = match[1]
        elif match := _SETTING.fullmatch(line):
            name, value = match[1], match[2].strip()
            if (section, name) in values:
                if (section, name) in missing:
                    lines.append(f"{name} = {missing.pop((section, name)).replace('$', '$$')}")
                continue
            if value == before:
                line = f"{name} = {after}"
        lines.append(line)
    for (section, name), value in missing.items():
        lines += ["", f"[{section}]", f"{name} = {value.replace('$', '$$')}"]
    return "\n".join([*lines, ""])


# --- files of this machine


def apply(directory: str) -> list[str]:
    """Write the controllers into the files of this machine, and reload what has changed. Returns the changed parts."""
    found, listed = local(), controllers.members(directory)
    if found is None or not listed:
        return []
    changed = ["names"] if _write_names(listed) else []
    if found.has_database and galera.write_members(found.address, listed):
        changed.append("database")
    changed += balancer.apply(
        found.address,
        found.interface,
        found.virtual_address,
        listed,
        controllers.front_ends(directory),
        has_database=found.has_database,
        proxy_protocol=found.proxy_protocol,
    )
    return changed


def _write_names(listed: Sequence[Controller]) -> bool:
    """Name the controllers in /etc/hosts, by which brokers find each other. The file is changed in place."""
    first, last = HOSTS_MARKS
    return _replace_names([first, *map(_names, listed), last])


def remove_names() -> None:
    _replace_names([])


def _replace_names(ours: Sequence[str]) -> bool:
    first, last = HOSTS_MARKS
    text = HOSTS.read_text() if HOSTS.exists() else ""
    kept, inside = [], False
    for line in text.splitlines():
        inside = inside or line == first
        if not inside:
            kept.append(line)
        inside = inside and line != last
    made = "\n".join([*ours, *kept, ""])
    if made == text:
        return False
    HOSTS.write_text(made)
    return True


def _names(member: Controller) -> str:
    short = member.host.partition(".")[0]
    return " ".join(dict.fromkeys((member.address, member.host, short)))
