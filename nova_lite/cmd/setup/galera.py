"""MariaDB of a controller as a node of a Galera cluster. Each node has all data; a majority of them has to be there.

All conductors write to the same node (`nova_lite.cmd.setup.balancer`): rows are locked on one node only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from nova_lite.base import exceptions, files
from nova_lite.cmd.setup import machine
from nova_lite.objects import Controller

CERTIFICATES = Path("/etc/mysql/nova-lite")
CLUSTER_CERTIFICATES = CERTIFICATES / "cluster"
PACKAGES = ("mariadb-server", "mariadb-backup", "galera-4", "socat")
PORT = 3306

_SETTINGS = Path("/etc/mysql/mariadb.conf.d/70-nova-lite.cnf")
_MEMBERS = Path("/etc/mysql/mariadb.conf.d/71-nova-lite-members.cnf")
FILES = (_SETTINGS, _MEMBERS)
_HEADER = "# Written by nova-lite-setup, which replaces it.\n"
UNIT = "mariadb.service"
#: Unit of the port at which the node reports its state, which runs while the node does.
CHECK_SOCKET = "nova-lite-database-check.socket"
#: Unit that begins a new majority. The registrar, whose sandbox does not reach the database's files, starts it.
RECOVERY = "nova-lite-database-recover.service"
#: Program of `CHECK_SOCKET`'s service.
REPORT = CERTIFICATES / "report.sh"
_DATA = Path("/var/lib/mysql")
#: Writes the state of the node, as `nova_lite.rpc.node_reports` reads it.
REPORT_TEXT = rf"""{_HEADER}names="'wsrep_cluster_state_uuid', 'wsrep_cluster_status'"
names="$names, 'wsrep_last_committed', 'wsrep_ready'"
status=$(mariadb --batch --skip-column-names --connect-timeout=2 \
    --execute "SHOW GLOBAL STATUS WHERE variable_name IN ($names)" 2>/dev/null)
tab=$(printf '\t')
case $status in *"wsrep_cluster_status${{tab}}Primary"*)
    case $status in *"wsrep_ready${{tab}}ON"*) echo up; exit ;; esac ;;
esac
echo down
echo "$status"
for pid in $(pidof mariadbd); do
    echo runs "$pid"
    tr '\0' '\n' <"/proc/$pid/cmdline" | sed -n 's/^--wsrep_start_position=/start /p'
done
sed -n 's/^\(uuid\|seqno\): */\1 /p' {_DATA}/grastate.dat
"""
#: Debian starts a node again after a signal only. A node ends with a status when its address is not there yet, when it
#: finds no other node, or when its donor goes.
_UNIT_SETTINGS = f"""{machine.WAITS_FOR_ADDRESS}Upholds={CHECK_SOCKET}
[Service]
Restart=on-failure
RestartSec=5
# After a power cut it waits for the others for as long as they are away.
TimeoutStartSec=infinity
# A stop that coincides with the loss of another node would cost the majority.
ExecStop=-+{machine.PROGRAMS}/nova-lite-setup settle database
"""
_RECOVERY = f"""[Unit]
Description=nova_lite: begins a new majority of the database's nodes
[Service]
Type=oneshot
ExecStart={machine.PROGRAMS}/nova-lite-setup database recover
"""
#: Seconds in which a node gets the whole database from another.
_JOIN_SECONDS = 900
#: Seconds after which a node that does not run yet is killed.
_TERM_SECONDS = 10


def write_settings(host: str, address: str) -> bool:
    """Write the settings of a node and of its unit. Returns whether those of the node have changed."""
    write_unit_settings()
    bracketed = f"[{address}]" if ":" in address else address
    certificate, key = CLUSTER_CERTIFICATES / "server-cert.pem", CLUSTER_CERTIFICATES / "server-key.pem"
    trusted = CLUSTER_CERTIFICATES / "ca-cert.pem"
    options = f"gcache.size=512M; socket.ssl_key={key}; socket.ssl_cert={certificate}; socket.ssl_ca={trusted}"
    lines = [
        "[mariadbd]",
        f"bind-address = {address}",
        f"ssl_ca = {CERTIFICATES}/ca-cert.pem",
        f"ssl_cert = {CERTIFICATES}/server-cert.pem",
        f"ssl_key = {CERTIFICATES}/server-key.pem",
        "binlog_format = ROW",
        "default_storage_engine = InnoDB",
        "innodb_autoinc_lock_mode = 2",
        "# Health checks of load balancers end connections early, and must not shut them out.",
        "max_connect_errors = 4294967295",
        "max_connections = 500",
        "wsrep_on = ON",
        "wsrep_provider = /usr/lib/galera/libgalera_smm.so",
        "wsrep_cluster_name = nova-lite",
        f"wsrep_node_name = {host}",
        f"wsrep_node_address = {bracketed}",
        "# A node that joins gets a copy while its donor continues.",
        "wsrep_sst_method = mariabackup",
        "wsrep_sst_auth = mysql:",
        f"wsrep_provider_options = '{options}'",
        "[sst]",
        "encrypt = 3",
        f"tkey = {key}",
        f"tcert = {certificate}",
        f"tca = {trusted}",
        "",
    ]
    return machine.replace(_SETTINGS, _HEADER + "\n".join(lines))


def write_unit_settings() -> None:
    machine.write_unit_settings(UNIT, _UNIT_SETTINGS)
    if machine.replace(machine.UNITS / RECOVERY, _HEADER + _RECOVERY):
        machine.run("systemctl", "daemon-reload")


def write_members(address: str, listed: Sequence[Controller]) -> bool:
    """Name the nodes, which a node reads at its start. The only node of a cluster starts without others."""
    own = [member for member in listed if member.address == address]
    others = [member for member in listed if member.address != address]
    names = ",".join(f"[{m.address}]" if ":" in m.address else m.address for m in (*own, *others)) if others else ""
    return machine.replace(_MEMBERS, f"{_HEADER}[mariadbd]\nwsrep_cluster_address = gcomm://{names}\n")


def start(has_changed: bool) -> None:
    """Start the node, and wait until it accepts statements. Raises `ConfigurationError`."""
    machine.run("systemctl", "enable", "mariadb")
    if not has_changed and is_ready():
        return
    # A node that gets all data takes as long as the copy.
    machine.run("systemctl", "restart", "mariadb", seconds=_JOIN_SECONDS)
    _wait_until_ready()


def is_ready() -> bool:
    """Check whether this node accepts statements and is a part of the cluster's majority."""
    try:
        return machine.run("mariadb", "--batch", "--skip-column-names", given=_READY).split() == ["ON", "Primary"]
    except exceptions.ConfigurationError:
        return False


_READY = (
    "SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name IN ('wsrep_ready', 'wsrep_cluster_status') ORDER BY variable_name DESC;\n"
)


def majority_size() -> int:
    """Return the number of nodes of this one's majority. 0: it is in none, or does not run."""
    try:
        found = machine.run("mariadb", "--batch", "--skip-column-names", "--connect-timeout=5", given=_SIZE).split()
    except exceptions.ConfigurationError:
        return 0
    return int(found[1]) if found[2:] == ["wsrep_cluster_status", "Primary"] else 0


_SIZE = "SHOW GLOBAL STATUS WHERE variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status');\n"


def bootstrap_running() -> None:
    """Let this node, which runs, begin a new majority. Its caller has looked at all others."""
    machine.run("mariadb", given="SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true';\n")
    _wait_until_ready()


def bootstrap_stopped() -> None:
    """Start this node as the first one of a new majority. Its caller has looked at all others."""
    _stop_waiting()
    saved = _DATA / "grastate.dat"
    lines = [line for line in saved.read_text().splitlines() if not line.startswith("safe_to_bootstrap:")]
    owner = machine.ids("mysql")
    files.write_atomically(
        str(saved), "\n".join([*lines, "safe_to_bootstrap: 1", ""]).encode(), mode=0o660, owner=owner
    )
    (_DATA / "gvwstate.dat").unlink(missing_ok=True)  # The majority that it would wait for.
    machine.run("galera_new_cluster", seconds=_JOIN_SECONDS)
    _wait_until_ready()


def _stop_waiting() -> None:
    """Stop a node that waits in its start. Such a node ignores SIGTERM, and has nothing in progress."""
    machine.run("systemctl", "stop", "--no-block", "mariadb")
    deadline = time.monotonic() + _TERM_SECONDS
    while machine.run("systemctl", "show", "--value", "--property=MainPID", "mariadb").strip() != "0":
        if time.monotonic() > deadline:
            machine.run("systemctl", "kill", "--signal=KILL", "mariadb")
            break
        time.sleep(0.5)
    machine.run("systemctl", "stop", "mariadb")


def _wait_until_ready() -> None:
    deadline = time.monotonic() + _JOIN_SECONDS
    while not is_ready():
        if time.monotonic() > deadline:
            raise exceptions.ConfigurationError(reason="the database's node does not accept statements.")
        time.sleep(1)


def size() -> int:
    """Return the number of nodes that this one sees."""
    found = machine.run("mariadb", "--batch", "--skip-column-names", given="SHOW STATUS LIKE 'wsrep_cluster_size';\n")
    return int(found.split()[1])


def remove() -> None:
    """Remove our settings. The data stays."""
    for path in FILES:
        path.unlink(missing_ok=True)
    machine.remove_unit_settings(UNIT)
    (machine.UNITS / RECOVERY).unlink(missing_ok=True)
