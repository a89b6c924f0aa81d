"""Settings of a set-up: from the command line, or from a file of answers, with defaults for the rest."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from nova_lite.base import exceptions, ip
from nova_lite.db.core import urls

SQLITE, MARIADB = "sqlite", "mariadb"
DATABASES = (SQLITE, MARIADB)

_HELP = {
    "address": "address at which clients and other machines reach this one. Anything but a loopback address is served "
    "over TLS, with certificates of an authority of this machine; default: %(default)s",
    "database": "sqlite (one conductor), mariadb (installed on this machine), or the URL of an empty database; "
    "default: %(default)s",
    "virtual_address": "address of the cloud, which further controllers can take over. Clients and hosts use it in "
    "place of address. It needs a database that all controllers reach: mariadb (then a Galera cluster) or a URL",
    "region": "name of the region in the catalog; default: %(default)s",
    "cloud": "name of the cloud in /etc/openstack/clouds.yaml; default: %(default)s",
    "project_ranges": "IPv4 and IPv6 ranges, separated by commas, to which members are restricted for own networks; "
    "default: any range",
}
_DEFAULTS = {
    "address": "127.0.0.1",
    "database": SQLITE,
    "virtual_address": "",
    "region": "RegionOne",
    "cloud": "nova-lite",
    "project_ranges": "",
}
NAMES = tuple(_DEFAULTS)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Settings(NamedTuple):
    """Settings of a controller. ``host``: the machine's name in the cloud."""

    address: str
    database: str
    region: str
    cloud: str
    project_ranges: str
    host: str
    virtual_address: str = ""

    @property
    def has_tls(self) -> bool:
        return not ip.is_loopback(self.address)

    @property
    def shown_address(self) -> str:
        """Address as part of a URL."""
        return ip.in_url(self.address)

    @property
    def client_address(self) -> str:
        """Address that clients and hosts use, as part of a URL."""
        return ip.in_url(self.virtual_address or self.address)

    def url(self, port: int) -> str:
        return f"{'https' if self.has_tls else 'http'}://{self.client_address}:{port}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, default in _DEFAULTS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", metavar=name.upper(), help=_HELP[name].replace("%(default)s", default)
        )
    parser.add_argument(
        "--answers", metavar="FILE", help="YAML file with these settings by name, such as 'address: 192.0.2.10'"
    )


def read(args: argparse.Namespace) -> Settings:
    """Return the settings: a flag, else the answer, else the default. Raises `ConfigurationError`."""
    answers = _answers(args.answers) if args.answers else {}
    values = {
        name: getattr(args, name) if getattr(args, name) is not None else answers.get(name, default)
        for name, default in _DEFAULTS.items()
    }
    made = Settings(host=socket.gethostname(), **values)
    _check(made)
    return made


def _answers(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = yaml.safe_load(file) or {}
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise exceptions.ConfigurationError(reason=f"{path} is not YAML.") from error
    if not isinstance(found, dict):
        raise exceptions.ConfigurationError(reason=f"{path} has no settings by name, such as 'address: 192.0.2.10'.")
    unknown = sorted(map(str, found.keys() - _DEFAULTS.keys()))
    if unknown:
        raise exceptions.ConfigurationError(
            reason=f"{path}: unknown {', '.join(unknown)}; there are {', '.join(_DEFAULTS)}."
        )
    wrong = sorted(name for name, value in found.items() if not isinstance(value, str))
    if wrong:
        raise exceptions.ConfigurationError(reason=f"{path}: {wrong[0]} is not text; put it in quotes.")
    return found


def _check(wanted: Settings) -> None:
    try:
        address = ip.parse(wanted.address)
    except ValueError as error:
        raise exceptions.ConfigurationError(reason=f"address: {wanted.address} is not an IP address.") from error
    if address.is_unspecified or address.is_multicast:
        raise exceptions.ConfigurationError(reason=f"address: name one address of this machine, not {wanted.address}.")
    if wanted.virtual_address:
        _check_virtual_address(wanted)
    for name in ("region", "cloud", "host"):
        if not _NAME.fullmatch(getattr(wanted, name)):
            raise exceptions.ConfigurationError(
                reason=f"{name}: {getattr(wanted, name)!r} has to be up to 64 letters, digits, dots, dashes."
            )
    for text in filter(None, wanted.project_ranges.split(",")):
        try:
            ip.parse_network(text.strip())
        except ValueError as error:
            raise exceptions.ConfigurationError(reason=f"project_ranges: {text}: {error}.") from error
    if wanted.database not in DATABASES:
        _check_url(wanted.database)


def _check_virtual_address(wanted: Settings) -> None:
    try:
        virtual = ip.parse(wanted.virtual_address)
    except ValueError as error:
        raise exceptions.ConfigurationError(
            reason=f"virtual_address: {wanted.virtual_address} is not an IP address."
        ) from error
    own = ip.parse(wanted.address)
    if virtual.is_unspecified or virtual.is_multicast or virtual.is_loopback or virtual.version != own.version:
        raise exceptions.ConfigurationError(reason="virtual_address: name a free address of the network of address.")
    if virtual == own or not wanted.has_tls:
        raise exceptions.ConfigurationError(
            reason="address: name this machine's own address, besides the virtual one that all controllers share."
        )
    if wanted.database == SQLITE:
        raise exceptions.ConfigurationError(
            reason="database: several controllers need mariadb or a URL; SQLite is one machine's."
        )


def _check_url(text: str) -> None:
    try:
        kind = urls.parse(text).kind
    except ValueError as error:
        raise exceptions.ConfigurationError(
            reason=f"database: {SQLITE}, {MARIADB}, or a URL like mysql://user:password@host/name."
        ) from error
    if kind not in ("mysql", "mariadb", "postgresql") or re.search(r"[\r\n]", text):
        raise exceptions.ConfigurationError(reason="database: a URL has to be of MariaDB or PostgreSQL.")


def is_local(address: str) -> bool:
    """Check whether this machine has an address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True


def has_systemd() -> bool:
    return os.path.isdir("/run/systemd/system")


def require_systemd() -> None:
    """Raise `ConfigurationError` on a machine without systemd."""
    if not has_systemd():
        raise exceptions.ConfigurationError(reason="this machine does not run systemd, which runs the daemons.")


def require_programs(*daemons: str) -> None:
    """Raise `ConfigurationError` unless the programs of these daemons are installed beside this one."""
    programs = Path(sys.executable).parent
    for name in daemons:
        if not (programs / f"nova-lite-{name}").exists():
            raise exceptions.ConfigurationError(
                reason=f"nova-lite-{name} is not in {programs}: install the package first."
            )
