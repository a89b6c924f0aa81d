"""RabbitMQ of a controller: where it listens, the cloud's virtual host, and an account for each daemon."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from nova_lite.base import exceptions
from nova_lite.cmd.setup import machine
from nova_lite.cmd.setup.settings import Settings
from nova_lite.rpc.broker import Account, definitions
from nova_lite.rpc.keys import COMPUTE

VHOST = "nova-lite"
PREFIX = "nova-lite"
PORT, TLS_PORT = 5672, 5671

_ETC = Path("/etc/rabbitmq")
_OURS = _ETC / "conf.d" / "nova-lite.conf"
#: Seconds that the broker may take to start.
_START_SECONDS = 120


def url(role: str, password: str) -> str:
    """Return the URL by which a daemon of this machine reaches the broker."""
    return f"rabbit://{PREFIX}-{role}:{quote(password, safe='')}@127.0.0.1:{PORT}/{VHOST}"


def account(role: str, host: str, transport_url: str | None, path: Path) -> Account:
    """Return the account that a daemon's file names. Raises `ConfigurationError` if it names none."""
    parts = urlsplit(transport_url or "")
    if not parts.username or not parts.password:
        raise exceptions.ConfigurationError(reason=f"{path}: [DEFAULT] transport_url names no account.")
    return Account(user=unquote(parts.username), password=unquote(parts.password), role=role, host=host)


def set_up(wanted: Settings, certificates: Path, accounts: list[Account]) -> str:
    """Let the broker listen, and make the accounts. Returns what was done."""
    note = _listen(wanted, certificates)
    if VHOST not in _ctl("list_vhosts", "name").split():
        _ctl("add_vhost", VHOST)
    _ctl("import_definitions", given=json.dumps(definitions(VHOST, accounts)))
    return f"{len(accounts)} accounts{note}"


def host_user(host: str) -> str:
    """Return the name of a compute host's account."""
    return f"{PREFIX}-{COMPUTE}.{host}"


def add_host(vhost: str, host: str, password_hash: str) -> None:
    """Make or change the account of a compute host."""
    made = Account(user=host_user(host), role=COMPUTE, host=host, password_hash=password_hash)
    _ctl("import_definitions", given=json.dumps(definitions(vhost, [made])))


def remove_host(host: str) -> None:
    """Delete the account of a compute host, which ends its connections."""
    if host_user(host) in [line.split("\t")[0] for line in _ctl("list_users").splitlines()]:
        _ctl("delete_user", host_user(host))


def _listen(wanted: Settings, certificates: Path) -> str:
    """Let the broker listen on loopback, and for other machines by TLS. Somebody else's configuration stays."""
    others = [path for path in (_ETC / "rabbitmq.conf", *sorted((_ETC / "conf.d").glob("*"))) if path != _OURS]
    others = [path for path in others if path.exists() and _has_settings(path)]
    if others:
        _start()
        return f"; {others[0]} is there, so where it listens stays as it is"
    lines = [f"listeners.tcp.1 = 127.0.0.1:{PORT}"]
    if wanted.has_tls:
        lines += [
            f"listeners.ssl.1 = {wanted.shown_address}:{TLS_PORT}",
            f"ssl_options.cacertfile = {certificates}/ca-cert.pem",
            f"ssl_options.certfile = {certificates}/server-cert.pem",
            f"ssl_options.keyfile = {certificates}/server-key.pem",
            "ssl_options.verify = verify_none",
            "ssl_options.versions.1 = tlsv1.3",
            "ssl_options.versions.2 = tlsv1.2",
        ]
    text = "\n".join(["# Written by nova-lite-setup.", *lines, ""])
    if not _OURS.exists() or _OURS.read_text() != text:
        # Stopped first: after an interruption, the broker starts with the new file.
        machine.run("systemctl", "stop", "rabbitmq-server")
        machine.replace(_OURS, text)
    _start()
    return f"; TLS at {wanted.shown_address}:{TLS_PORT}" if wanted.has_tls else ""


def _has_settings(path: Path) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in path.read_text().splitlines())


def _start() -> None:
    machine.run("systemctl", "enable", "--now", "rabbitmq-server")
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            _ctl("await_startup")
            return
        except exceptions.ConfigurationError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _ctl(*arguments: str, given: str = "") -> str:
    """Run rabbitmqctl as the broker's user: for root it would open a session of that user each time."""
    return machine.run("rabbitmqctl", "--quiet", *arguments, given=given, user="rabbitmq")


def is_ours() -> bool:
    """Check whether this machine's broker has our virtual host, as far as files tell."""
    is_controller = (machine.CONFIGURATION / "conductor.conf").exists()
    return (is_controller or _OURS.exists()) and shutil.which("rabbitmqctl") is not None


def remove() -> None:
    """Delete the virtual host and our accounts."""
    if VHOST in _ctl("list_vhosts", "name").split():
        _ctl("delete_vhost", VHOST)
    for line in _ctl("list_users").splitlines():
        name = line.split("\t")[0]
        if name.startswith(f"{PREFIX}-"):
            _ctl("delete_user", name)
    _OURS.unlink(missing_ok=True)
