"""RabbitMQ of a controller: where it listens, the cloud's virtual host, and an account for each daemon."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from nova_lite.base import exceptions, files, ip
from nova_lite.base.join_requests import CONTROLLER_ROLES
from nova_lite.cmd.manage import programs
from nova_lite.cmd.setup import machine
from nova_lite.rpc.broker import Account, definitions
from nova_lite.rpc.keys import COMPUTE

VHOST = "nova-lite"
PREFIX = "nova-lite"
PORT, TLS_PORT = 5672, 5671

UNIT = "rabbitmq-server.service"
_STOP = "ExecStop=/usr/sbin/rabbitmqctl stop"
_ETC = Path("/etc/rabbitmq")
COOKIE = Path("/var/lib/rabbitmq/.erlang.cookie")
_OURS = _ETC / "conf.d" / "nova-lite.conf"
#: Settings of a node of a cluster.
_CLUSTER = _ETC / "conf.d" / "nova-lite-cluster.conf"
_DISTRIBUTION = _ETC / "nova-lite-distribution.config"
_ENVIRONMENT = _ETC / "rabbitmq-env.conf"
FILES = (_OURS, _CLUSTER, _DISTRIBUTION, _ENVIRONMENT)
_HEADER = "# Written by nova-lite-setup, which replaces it.\n"
#: Seconds that the broker may take to start.
_START_SECONDS = 120
#: Exit status of rabbitmqctl for an account that does not exist.
_NO_USER = 67


def url(role: str, password: str, host: str = "", port: int = PORT, address: str = "127.0.0.1") -> str:
    """Return the URL by which a daemon of this machine reaches the broker. ``host``: of a machine that joined."""
    user = f"{PREFIX}-{role}.{host}" if host else f"{PREFIX}-{role}"
    return f"rabbit://{quote(user, safe='')}:{quote(password, safe='')}@{address}:{port}/{VHOST}"


def account(role: str, host: str, transport_url: str | None, path: Path) -> Account:
    """Return the account that a daemon's file names. Raises `ConfigurationError` if it names none."""
    parts = urlsplit(transport_url or "")
    if not parts.username or not parts.password:
        raise exceptions.ConfigurationError(reason=f"{path}: [DEFAULT] transport_url names no account.")
    return Account(user=unquote(parts.username), password=unquote(parts.password), role=role, host=host)


def provide_accounts(accounts: list[Account]) -> str:
    """Create the accounts, and the virtual host if it is missing. Returns what was done.

    Each start of rabbitmqctl costs a second or more, so the accounts are tried first. A virtual host that exists is not
    imported: that would reset its description and its default queue type.
    """
    try:
        add_accounts(accounts)
    except exceptions.ConfigurationError:  # Most likely the virtual host is missing. Any other cause fails again.
        _import({"vhosts": [{"name": VHOST}], **definitions(VHOST, accounts)})
    return f"{len(accounts)} accounts"


def add_accounts(accounts: list[Account]) -> None:
    """Make or change accounts of daemons."""
    _import(definitions(VHOST, accounts))


def host_user(host: str, role: str = COMPUTE) -> str:
    """Return the name of the account of a machine with one role, such as a compute host."""
    return f"{PREFIX}-{role}.{host}"


def add_host(vhost: str, host: str, password_hash: str, role: str = COMPUTE) -> None:
    """Make or change the account of a machine with one role."""
    made = Account(user=host_user(host, role), role=role, host=host, password_hash=password_hash)
    _import(definitions(vhost, [made]))


def remove_host(host: str, role: str = COMPUTE) -> None:
    """Delete the account of a machine with one role, which ends its connections."""
    _ctl("delete_user", host_user(host, role), accepted=(0, _NO_USER))


def remove_accounts(users: Collection[str]) -> None:
    """Delete the accounts that exist of these names."""
    for user in _users():
        if user in users:
            _ctl("delete_user", user)


def remove_controller(host: str) -> None:
    """Delete the accounts of a controller that joined, and its broker if that does not run."""
    remove_accounts([host_user(host, role) for role in CONTROLLER_ROLES])
    node = node_of(host)
    status = json.loads(_ctl("cluster_status", "--formatter", "json"))
    if node in status["disk_nodes"] and node not in status["running_nodes"]:
        _ctl("forget_cluster_node", node)


# --- a cluster of brokers


def write_cluster_settings(certificates: Path) -> bool:
    """Let brokers of several controllers find each other, by TLS with certificates of the cluster's authority.

    Returns whether a file has changed. Raises `ConfigurationError` if another program's settings are there.
    """
    if _ENVIRONMENT.exists() and not _ENVIRONMENT.read_text().startswith(_HEADER) and _has_settings(_ENVIRONMENT):
        raise exceptions.ConfigurationError(reason=f"{_ENVIRONMENT} is of another program: move it away.")
    options = [f'{{cacertfile, "{certificates}/ca-cert.pem"}}', f'{{certfile, "{certificates}/server-cert.pem"}}']
    options += [f'{{keyfile, "{certificates}/server-key.pem"}}', "{verify, verify_peer}"]
    server = ", ".join([*options, "{fail_if_no_peer_cert, true}"])
    changed = machine.replace(_DISTRIBUTION, f"[{{server, [{server}]}},\n {{client, [{', '.join(options)}]}}].\n")
    arguments = f"-pa $(echo /usr/lib/erlang/lib/ssl-*/ebin) -proto_dist inet_tls -ssl_dist_optfile {_DISTRIBUTION}"
    lines = [f'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="{arguments}"', f'RABBITMQ_CTL_ERL_ARGS="{arguments}"']
    changed |= machine.replace(_ENVIRONMENT, _HEADER + "\n".join([*lines, ""]))
    lines = ["cluster_partition_handling = pause_minority", "net_ticktime = 15"]
    return machine.replace(_CLUSTER, _HEADER + "\n".join([*lines, ""])) | changed


def stop() -> None:
    """Stop the broker, which reads its settings at its start."""
    machine.run("systemctl", "stop", "rabbitmq-server")


def cookie() -> str:
    """Return the secret by which brokers and rabbitmqctl recognise each other."""
    return machine.run("cat", str(COOKIE), user="rabbitmq").strip()  # The registrar reads files of root alone.


def join_cluster(other: str) -> str:
    """Make the broker of this machine a node of the cluster of another machine. It must have nothing of its own.

    May be repeated. Raises `ConfigurationError`.
    """
    node = node_of(other)
    if _is_member(node):
        return f"a node of {node}'s cluster already"
    stop()
    _start()
    if others := {*_users()} - {"guest"}:
        raise exceptions.ConfigurationError(
            reason=f"the broker of this machine has accounts of others, such as {min(others)}: move them first."
        )
    _ctl("stop_app")
    _ctl("reset")
    _ctl("join_cluster", node)
    _ctl("start_app")
    _start()  # waits: a busy machine may lose the others at first, and pauses until it sees them again
    return f"a node of {node}'s cluster"


def node_of(host: str) -> str:
    """Return the name of a machine's broker, which has the short name of the machine."""
    return f"rabbit@{host.partition('.')[0]}"


def write_cookie(secret: str) -> None:
    files.write_atomically(str(COOKIE), secret.encode(), mode=0o400, owner=machine.ids("rabbitmq"))


def cookie_differs(secret: str) -> bool:
    return not COOKIE.exists() or cookie() != secret


def grow(host: str) -> None:
    """Give the queues of the cluster a copy at a node. The brokers do that for new queues only."""
    machine.run("rabbitmq-queues", "--quiet", "grow", node_of(host), "all", user="rabbitmq")


def _is_member(node: str) -> bool:
    try:
        status = json.loads(_ctl("cluster_status", "--formatter", "json"))
    except (exceptions.ConfigurationError, ValueError):
        return False
    return node in status["disk_nodes"]


def listen(address: str, certificates: Path) -> str:
    """Let the broker listen on loopback, and for other machines by TLS. Another program's configuration stays."""
    write_unit_settings()
    ours = (_OURS, _CLUSTER)
    others = [path for path in (_ETC / "rabbitmq.conf", *sorted((_ETC / "conf.d").glob("*"))) if path not in ours]
    others = [path for path in others if path.exists() and _has_settings(path)]
    if others:
        _start()
        return f"; {others[0]} is there, so where it listens stays as it is"
    lines = [f"listeners.tcp.1 = 127.0.0.1:{PORT}"]
    has_tls = not ip.is_loopback(address)
    if has_tls:
        lines += [
            f"listeners.ssl.1 = {ip.in_url(address)}:{TLS_PORT}",
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
    return f"; TLS at {ip.in_url(address)}:{TLS_PORT}" if has_tls else ""


def write_unit_settings() -> None:
    # A stop that coincides with the loss of another broker would cost the majority. Commands of the package come after.
    settle = f"[Service]\nExecStop=\nExecStop=-+{machine.PROGRAMS}/nova-lite-setup settle broker\n{_STOP}\n"
    machine.write_unit_settings(UNIT, machine.WAITS_FOR_ADDRESS + settle)


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


def _users() -> list[str]:
    """Return the names of all accounts of the broker."""
    return [line.split("\t")[0] for line in _ctl("list_users", "--no-table-headers").splitlines()]


def _import(made: dict[str, list[dict[str, Any]]]) -> None:
    """Make or change what definitions contain. They are input, so that no argument shows them.

    rabbitmqctl of RabbitMQ 4 never ends if it reads them from its standard input without a name.
    """
    _ctl("import_definitions", programs.INPUT, given=json.dumps(made))


def _ctl(*arguments: str, given: str = "", accepted: Collection[int] = (0,)) -> str:
    """Run rabbitmqctl as the broker's user: for root it would open a session of that user each time."""
    return machine.run("rabbitmqctl", "--quiet", *arguments, given=given, user="rabbitmq", accepted=accepted)


def is_ours() -> bool:
    """Check whether this machine's broker has our virtual host, as far as files tell."""
    is_controller = (machine.CONFIGURATION / "conductor.conf").exists()
    return (is_controller or _OURS.exists()) and shutil.which("rabbitmqctl") is not None


def leave_cluster() -> None:
    """Leave the cluster, whose other nodes keep the virtual host. The files go as well."""
    _ctl("stop_app")
    _ctl("reset")
    _remove_files()
    stop()


def remove() -> None:
    """Delete the virtual host and our accounts."""
    if VHOST in _ctl("list_vhosts", "name").split():
        _ctl("delete_vhost", VHOST)
    for name in _users():
        if name.startswith(f"{PREFIX}-"):
            _ctl("delete_user", name)
    _remove_files()


def _remove_files() -> None:
    for path in FILES:
        # The package of RabbitMQ has one of this name, too.
        if path != _ENVIRONMENT or (path.exists() and path.read_text().startswith(_HEADER)):
            path.unlink(missing_ok=True)
    machine.remove_unit_settings(UNIT)
