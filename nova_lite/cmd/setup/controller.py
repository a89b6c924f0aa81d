"""The steps that make a controller: broker, database, keys, certificates, configuration, first admin, daemons."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import requests
import yaml

from nova_lite.api.http.proxy_protocol import CONTROLLERS
from nova_lite.base import exceptions, master_keys
from nova_lite.base.host_certificates import CLIENT_CERTIFICATE, Authority
from nova_lite.cmd.manage.app import HAS_SQL, NO_SQL
from nova_lite.cmd.manage.keys import provide_key
from nova_lite.cmd.setup import balancer, broker, clouds, cluster, galera, machine, monitoring, settings, units
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.cmd.setup.settings import MARIADB, SQLITE, Settings
from nova_lite.cmd.setup.steps import Step
from nova_lite.db.core import urls
from nova_lite.objects import Controller
from nova_lite.rpc import controllers, keys
from nova_lite.rpc.broker import Account

KEYS = cluster.KEYS
AUTHORITY = KEYS / "hosts"
API_CERTIFICATES = CONFIGURATION / "tls" / "api"
CONSOLE_CERTIFICATES = CONFIGURATION / "tls" / "consoles"
#: Certificate by which hosts recognise the console proxies. With it, hosts that join have TLS for consoles.
PROXY_CERTIFICATES = CONFIGURATION / "tls" / "proxies"
BROKER_CERTIFICATES = Path("/etc/rabbitmq/nova-lite")
BROKER_CLUSTER_CERTIFICATES = BROKER_CERTIFICATES / "cluster"
CLOUDS = Path("/etc/openstack/clouds.yaml")
STATE = Path("/var/lib/nova-lite")
#: Socket of the conductor for the API of this machine. Both units and tmpfiles.d know its directory.
SOCKET = Path("/run/nova-lite-conductor/rpc.sock")

#: Debian's package of the command line client, and the command that installs it without what it recommends.
CLIENT, INSTALL = "python3-openstackclient", "apt install --no-install-recommends"
#: Debian packages of every controller.
PACKAGES = ("rabbitmq-server", "novnc")
#: APIs with the option of their address and their port.
APIS = {
    "osapi_compute": ("listen", 8774),
    "identity": ("identity_listen", 5000),
    "image": ("image_listen", 9292),
    "volume": ("volume_listen", 8776),
    "network": ("network_listen", 9696),
    "page": ("page_listen", 8788),
}
#: The API for new hosts, which other machines reach by TLS alone.
JOIN_API = ("join", "join_listen")
#: Units in the order of their start, with the configuration file and the user of each daemon.
DAEMONS = {
    "conductor": "nova-lite-conductor",
    "scheduler": "nova-lite-scheduler",
    "api": "nova-lite-api",
    "novncproxy": "nova-lite-console",
    "serialproxy": "nova-lite-console",
}
#: Daemons that have their unit and file, and that an operator starts if users are to have them.
OPTIONAL = {"spicehtml5proxy": "nova-lite-console"}
#: The daemon that admits hosts. A controller without TLS has none, since no other machine reaches it.
REGISTRAR = "registrar"
#: Users of the signing keys by role.
KEY_OWNERS = {
    keys.CONDUCTOR: cluster.CONDUCTOR,
    keys.SCHEDULER: "nova-lite-scheduler",
    keys.API: "nova-lite-api",
    keys.CONSOLE: "nova-lite-console",
    keys.MANAGE: "root",
}
#: The role of each configuration file. The proxies share one account, and so do the registrar and nova-lite-manage.
FILE_ROLES = {
    "conductor": keys.CONDUCTOR,
    "scheduler": keys.SCHEDULER,
    "api": keys.API,
    "novncproxy": keys.CONSOLE,
    "serialproxy": keys.CONSOLE,
    "spicehtml5proxy": keys.CONSOLE,
    "manage": keys.MANAGE,
    REGISTRAR: keys.MANAGE,
}

#: The file of all daemons, and their group. The paste file of the API.
COMMON, PASTE = "nova-lite", "api-paste.ini"

_CERTIFICATE_DAYS = 825
_DATABASE = "nova_lite"
#: MiB that have to be free for broker, database and logs.
_FREE_MB = 500
#: Seconds that the cloud may take to answer.
START_SECONDS = 120
#: Seconds until the load balancer has seen an API that serves.
_SEEN_SECONDS = 15.0


def steps(wanted: Settings) -> list[Step]:
    balanced = [Step("Setting up the load balancer", lambda: _set_up_balancer(wanted))]
    return [
        Step("Checking this machine", lambda: _check_machine(wanted)),
        Step("Installing packages", lambda: _install_packages(wanted)),
        Step("Creating users and directories", units.create_users),
        Step("Creating keys of the daemons", lambda: create_keys(wanted)),
        Step("Creating certificates", lambda: _create_certificates(wanted)),
        Step("Writing the configuration", lambda: _write_configuration(wanted)),
        *(balanced if wanted.virtual_address else []),
        Step("Setting up the message broker", lambda: _set_up_broker(wanted)),
        Step("Setting up the database", lambda: _set_up_database(wanted)),
        Step("Creating the first admin", lambda: create_admin(wanted, f"{wanted.url(5000)}/v3")),
        Step("Starting the daemons", lambda: _start_daemons(wanted)),
        Step("Checking the cloud", lambda: _check_cloud(wanted)),
    ]


def farewell(wanted: Settings) -> str:
    return "\n".join(
        [
            "",
            f"The cloud answers at {wanted.url(5000)}/v3. Its admin is in {CLOUDS}{_client(wanted.cloud)}",
            "",
            f"The web page is at {wanted.url(8788)}/.",
            "",
            *_next_steps(wanted),
        ]
    )


def _client(cloud: str) -> str:
    """Return the end of a sentence about the admin: the first command, or where the command line client is from."""
    own = Path(sys.executable).parent / "openstack"
    if own.exists() or shutil.which("openstack"):
        return f":\n\n    {own if own.exists() else 'openstack'} --os-cloud {cloud} service list"
    return f".\nThe command line client is not installed here:\n\n    {INSTALL} {CLIENT}"


def _next_steps(wanted: Settings) -> list[str]:
    if not wanted.has_tls:
        return ["Add a compute host next: docs/howto/join-a-host.md."]
    return [
        "Add a compute host next. Here, and then on the host:",
        "",
        "    nova-lite-manage host token",
        "    nova-lite-setup compute TOKEN",
        *(_CONTROLLERS if wanted.virtual_address else []),
    ]


_CONTROLLERS = [
    "",
    "One controller is not enough to survive its loss. Add two more, with another token each:",
    "",
    "    nova-lite-setup controller TOKEN",
]


def _check_machine(wanted: Settings) -> str:
    settings.require_systemd()
    if not settings.is_local(wanted.address):
        raise exceptions.ConfigurationError(reason=f"this machine does not have the address {wanted.address}.")
    if not HAS_SQL:
        raise exceptions.ConfigurationError(reason=f"a controller has a conductor, and {NO_SQL}.")
    settings.require_programs(*DAEMONS, REGISTRAR)
    machine.require_space("/var/lib", _FREE_MB)
    _check_cluster(wanted)
    return f"{wanted.host} at {wanted.address}"


def _check_cluster(wanted: Settings) -> None:
    """Raise `ConfigurationError` for another virtual address than that of the first run."""
    known = cluster.local()
    before = known.virtual_address if known is not None else ""
    if before != wanted.virtual_address and (before or (CONFIGURATION / "nova-lite.conf").exists()):
        given = f"--virtual-address {before}" if before else "without --virtual-address"
        raise exceptions.ConfigurationError(
            reason=f"this controller was set up {given}; docs/howto/high-availability.md describes a change."
        )


def _install_packages(wanted: Settings) -> str:
    names = [*PACKAGES]
    if wanted.database == MARIADB:
        names += galera.PACKAGES if wanted.virtual_address else ["mariadb-server"]
    if wanted.virtual_address:
        names += balancer.PACKAGES
    installed = machine.install_packages(*names)
    return f"installed {', '.join(installed)}" if installed else "all are there"


def create_keys(wanted: Settings) -> str:
    """Create the daemons' keys that are missing, and the master keys of a new cloud's volumes."""
    made = sum(provide_key(str(KEYS), role, wanted.host, owner) for role, owner in KEY_OWNERS.items())
    if not (CONFIGURATION / "conductor.conf").exists():  # An older cloud has no encrypted volumes until it wants them.
        made += master_keys.provide(str(cluster.VOLUME_KEYS), machine.ids(KEY_OWNERS[keys.CONDUCTOR]))
    return f"{made} made" if made else "all are there"


def _create_certificates(wanted: Settings) -> str:
    if not wanted.has_tls:
        return "not needed on loopback"
    authority = Authority(str(AUTHORITY))
    authority.create()
    made = 0
    owners = [
        (API_CERTIFICATES, "nova-lite-api"),
        (CONSOLE_CERTIFICATES, "nova-lite-console"),
        (BROKER_CERTIFICATES, "rabbitmq"),
    ]
    of_cluster = [(BROKER_CLUSTER_CERTIFICATES, "rabbitmq")] if wanted.virtual_address else []
    if wanted.virtual_address and wanted.database == MARIADB:
        owners.append((galera.CERTIFICATES, "mysql"))
        of_cluster.append((galera.CLUSTER_CERTIFICATES, "mysql"))
    for directory, owner in (*owners, *of_cluster):
        if not (directory / "server-cert.pem").exists():
            os.makedirs(directory, mode=0o755, exist_ok=True)
            addresses = [*filter(None, (wanted.address, wanted.virtual_address)), "127.0.0.1"]
            issue = authority.issue_cluster if (directory, owner) in of_cluster else authority.issue_service
            issue(wanted.host, addresses, str(directory), _CERTIFICATE_DAYS, machine.ids(owner))
            made += 1
    if not (PROXY_CERTIFICATES / CLIENT_CERTIFICATE).exists():
        os.makedirs(PROXY_CERTIFICATES, mode=0o755, exist_ok=True)
        owner_ids = machine.ids("nova-lite-console")
        authority.issue_proxy(wanted.host, str(PROXY_CERTIFICATES), _CERTIFICATE_DAYS, owner_ids)
        made += 1
    machine.replace(authority_file(), (API_CERTIFICATES / "ca-cert.pem").read_text())
    return f"{made} made" if made else "all are there"


def authority_file() -> Path:
    """Return the certificate of the authority, which clients of this machine read."""
    return CLOUDS.parent / "nova-lite-ca.pem"


# --- configuration


def _write_configuration(wanted: Settings) -> str:
    if wanted.virtual_address:
        _write_cluster(wanted)
    written = machine.write_once(CONFIGURATION / PASTE, paste(), mode=0o644)
    for name, sections in configuration(wanted).items():
        written |= machine.write_once(CONFIGURATION / f"{name}.conf", machine.ini(sections), group_of(name))
    written |= monitoring.write(wanted, CONFIGURATION, monitoring.DIRECTORY)
    return f"in {CONFIGURATION}" if written else f"what {CONFIGURATION} has, stays"


def paste() -> str:
    """Return the text of the API's paste file."""
    return (machine.FILES / "nova-lite" / PASTE).read_text()


def configuration(wanted: Settings) -> dict[str, machine.Sections]:
    """Return the sections of each file by its name. Passwords that a file has already stay."""
    made = {COMMON: _common(wanted)}
    passwords = {role: password(role) or secrets.token_urlsafe(24) for role in FILE_ROLES.values()}
    for name, role in FILE_ROLES.items():
        sections = _own(wanted, name)
        port = balancer.BROKER_PORT if wanted.virtual_address else broker.PORT
        account = {"transport_url": broker.url(role, passwords[role], port=port)}
        made[name] = sections | {"DEFAULT": account | sections.get("DEFAULT", {})}
    known = machine.setting(CONFIGURATION / "conductor.conf", "database", "connection")
    if known is not None and wanted.database == MARIADB:
        made["conductor"]["database"]["connection"] = known
    return made


def group_of(name: str) -> str:
    """Return the group that may read a configuration file."""
    return COMMON if name == COMMON else (DAEMONS | OPTIONAL).get(name, "root")


def _write_cluster(wanted: Settings) -> None:
    """Write this controller as the first of several."""
    has_database = wanted.database == MARIADB
    local = cluster.Local(
        host=wanted.host,
        address=wanted.address,
        interface=balancer.interface_of(wanted.address),
        virtual_address=wanted.virtual_address,
        has_database=has_database,
        proxy_protocol=has_proxy_protocol(True),
    )
    cluster.write_local(local)
    if not controllers.members(str(KEYS)):
        controllers.write_members(str(KEYS), [Controller(host=wanted.host, address=wanted.address)])


def has_proxy_protocol(default: bool) -> bool:
    """Check whether the API's file has the option. ``default``: while the file is still to be written."""
    path = CONFIGURATION / "api.conf"
    return bool(machine.setting(path, "api", "proxy_protocol_from")) if path.exists() else default


def password(role: str) -> str | None:
    """Return the password of a role's account if one of its files has it already."""
    for name in (name for name, others in FILE_ROLES.items() if others == role):
        path = CONFIGURATION / f"{name}.conf"
        found = machine.setting(path, "DEFAULT", "transport_url")
        if found is not None:
            return broker.account(role, "", found, path).password
    return None


def _common(wanted: Settings) -> dict[str, dict[str, str]]:
    scheme = "https" if wanted.has_tls else "http"
    web = f"{scheme}://{wanted.client_address}:6080/vnc_lite.html"
    made = {
        "DEFAULT": {"my_ip": wanted.address, "host": wanted.host, "state_path": str(STATE)},
        "rpc": {"keys_directory": str(KEYS)},
        "identity": {"region": wanted.region},
        "vnc": {"novncproxy_host": wanted.address, "novncproxy_base_url": web},
        "spice": {
            "html5proxy_host": wanted.address,
            "html5proxy_base_url": f"{scheme}://{wanted.shown_address}:6082/spice_auto.html",
        },
        "serial_console": {
            "enabled": "true",
            "serialproxy_host": wanted.address,
            "base_url": f"{'wss' if wanted.has_tls else 'ws'}://{wanted.client_address}:6083/",
        },
    }
    if not wanted.virtual_address:  # Several conductors share the work of each API.
        made["rpc"]["conductor_socket"] = str(SOCKET)
    else:
        made["join"] = {
            "address": f"{wanted.client_address}:8780",
            "broker_address": f"{wanted.client_address}:{broker.TLS_PORT}",
        }
        made["oslo_messaging_rabbit"] = {
            "ssl": "true",
            "ssl_ca_file": str(authority_file()),
            "rabbit_quorum_queue": "true",
            "rabbit_transient_quorum_queue": "true",
        }
    return made


def _own(wanted: Settings, name: str) -> dict[str, dict[str, str]]:
    """Return the sections of one daemon's file, besides its account."""
    if name == "api":
        api = {"enabled_apis": ", ".join(APIS), "paste_config": str(CONFIGURATION / PASTE)}
        api |= {option: wanted.address for option, _ in APIS.values()}
        api["workers"] = str(min(4, os.cpu_count() or 1))
        if wanted.has_tls:
            join, join_listen = JOIN_API
            api |= {"enabled_apis": ", ".join([*APIS, join]), join_listen: wanted.address}
            api["enabled_ssl_apis"] = api["enabled_apis"]
            api["ssl_cert_file"] = str(API_CERTIFICATES / "server-cert.pem")
            api["ssl_key_file"] = str(API_CERTIFICATES / "server-key.pem")
        if not wanted.virtual_address:
            return {"api": api}
        api["proxy_protocol_from"] = CONTROLLERS
        api["compute_link_prefix"] = wanted.url(8774)
        ports = {"compute": (8774, "/v2.1"), "identity": (5000, "/v3"), "volume": (8776, "/v3")}
        ports |= {"image": (9292, ""), "network": (9696, "")}
        endpoints = {f"{api}_endpoint": f"{wanted.url(port)}{path}" for api, (port, path) in ports.items()}
        return {"api": api, "identity": endpoints}
    if name == "conductor":
        return {
            "database": {"connection": _database_url(wanted)},
            "network": {"project_ranges": wanted.project_ranges},
            "volume": {"encryption_key_file": str(cluster.VOLUME_KEYS)},
        }
    if name.endswith("proxy") and wanted.has_tls:
        directory = CONSOLE_CERTIFICATES
        return {
            "DEFAULT": {"cert": str(directory / "server-cert.pem"), "key": str(directory / "server-key.pem")},
            "console": {"tls_directory": str(PROXY_CERTIFICATES)},
        }
    return {}


def _database_url(wanted: Settings) -> str:
    if wanted.database == SQLITE:
        return f"sqlite:///{STATE}/conductor/nova-lite.sqlite"
    if wanted.database == MARIADB and wanted.virtual_address:
        return (
            f"mysql://{_DATABASE}:{secrets.token_hex(24)}@127.0.0.1:{controllers.DATABASE_PORT}/{_DATABASE}"
            f"?ssl_ca={authority_file()}"
        )
    if wanted.database == MARIADB:
        return f"mysql://{_DATABASE}:{secrets.token_hex(24)}@127.0.0.1/{_DATABASE}"
    return wanted.database


# --- broker, database, admin


def _set_up_balancer(wanted: Settings) -> str:
    has_database = wanted.database == MARIADB
    balancer.set_up(wanted.address, has_database)
    cluster.apply(str(KEYS))
    balancer.start()
    return f"{wanted.virtual_address}, by HAProxy and keepalived"


def _set_up_broker(wanted: Settings) -> str:
    if wanted.virtual_address and broker.write_cluster_settings(BROKER_CLUSTER_CERTIFICATES):
        broker.stop()
    note = broker.listen(wanted.address, BROKER_CERTIFICATES)
    return f"{broker.provide_accounts(accounts(wanted.host))}{note}"


def accounts(host: str) -> list[Account]:
    """Return the accounts of the daemons on this machine, as their files name them."""
    made = {}
    for name, role in FILE_ROLES.items():
        path = CONFIGURATION / f"{name}.conf"
        made[role] = broker.account(role, host, machine.setting(path, "DEFAULT", "transport_url"), path)
    return list(made.values())


def _set_up_database(wanted: Settings) -> str:
    if wanted.database == MARIADB:
        if wanted.virtual_address:
            galera.start(galera.write_settings(wanted.host, wanted.address))
            balancer.wait_until_served(controllers.DATABASE_PORT)
        if _connection().user == _DATABASE:
            machine.run("systemctl", "enable", "--now", "mariadb")
    return create_tables(wanted)


def create_tables(wanted: Settings) -> str:
    """Create what is missing in the database, whose server runs."""
    if wanted.database == MARIADB:
        _create_database(wanted)
    return as_conductor("db", "sync").splitlines()[0].rstrip(".")


def _connection() -> urls.DatabaseUrl:
    return urls.parse(machine.setting(CONFIGURATION / "conductor.conf", "database", "connection") or "")


def _create_database(wanted: Settings) -> None:
    """Create the database and the user that the conductor's file names, unless an operator has changed it."""
    url = _connection()
    if url.user == _DATABASE:
        name, password = _sql_word(url.database), _sql_word(url.password)
        # Conductors of other controllers come through their HAProxy, with TLS.
        user, tls = (f"'{name}'@'%'", " REQUIRE SSL") if wanted.virtual_address else (f"'{name}'@'localhost'", "")
        machine.run(
            "mariadb",
            given=f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{password}'{tls};\n"
            f"ALTER USER {user} IDENTIFIED BY '{password}'{tls};\n"
            f"GRANT ALL PRIVILEGES ON `{name}`.* TO {user};\n",
        )


def _sql_word(text: object) -> str:
    """Return a text that needs no quoting in SQL. Raises `ConfigurationError` for any other."""
    word = str(text)
    if not word.replace("_", "").isalnum() or not word.isascii():
        raise exceptions.ConfigurationError(
            reason=f"{CONFIGURATION}/conductor.conf: [database] connection was changed; name its URL by --database."
        )
    return word


def as_conductor(*arguments: str, given: str = "") -> str:
    """Run ``nova-lite-manage`` as the conductor's user, who owns the files of SQLite."""
    files = [CONFIGURATION / "nova-lite.conf", CONFIGURATION / "conductor.conf"]
    options = [word for path in files for word in ("--config-file", str(path))]
    return machine.manage(*options, *arguments, given=given, user="nova-lite-conductor")


def create_admin(wanted: Settings, auth_url: str) -> str:
    """Create the admin. The password is stored first, so that an interrupted set-up finds it again."""
    password = admin_password(wanted.cloud)
    known = password is not None
    if password is None:
        password = secrets.token_urlsafe(18)
        store_cloud(wanted, auth_url, password)
    as_conductor("user", "init", given=f"{password}\n")
    return f"admin, in {CLOUDS}" if not known else "admin is there"


def admin_password(cloud: str) -> str | None:
    path = clouds.secure_file(str(CLOUDS))
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file) or {}
        return str(found["clouds"][cloud]["auth"]["password"])
    except (FileNotFoundError, KeyError, TypeError):
        return None
    except yaml.YAMLError as error:
        raise exceptions.ConfigurationError(reason=f"{path} is not YAML.") from error


def store_cloud(wanted: Settings, auth_url: str, password: str) -> None:
    """Write the cloud with its admin for clients. ``auth_url``: of the identity API."""
    cacert = str(authority_file()) if wanted.has_tls else None
    settings_of = clouds.cloud_of_user(auth_url, "admin", cacert, wanted.region)
    try:
        clouds.put_user(str(CLOUDS), wanted.cloud, settings_of, password)
    except SystemExit as error:
        raise exceptions.ConfigurationError(reason=str(error)) from error
    except yaml.YAMLError as error:
        raise exceptions.ConfigurationError(reason=f"{CLOUDS} is not YAML.") from error


# --- daemons


def _start_daemons(wanted: Settings) -> str:
    names = [*DAEMONS, REGISTRAR] if wanted.has_tls else [*DAEMONS]
    return units.start([f"nova-lite-{name}" for name in names], [f"nova-lite-{name}" for name in OPTIONAL])


def _log_in(url: str, body: dict[str, Any], verify: str | bool, seconds: float = _SEEN_SECONDS) -> requests.Response:
    """Send a log-in. The load balancer closes connections until it has seen the API, which has just started."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return requests.post(url, json=body, verify=verify, timeout=START_SECONDS)
        except requests.ConnectionError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.5)


def _check_cloud(wanted: Settings) -> str:
    """Log in as the admin, and list the hosts by the compute API. Then check the configuration of each daemon."""
    password = admin_password(wanted.cloud)
    verify = str(authority_file()) if wanted.has_tls else True
    user = {"name": "admin", "domain": {"id": "default"}, "password": password}
    auth: dict[str, Any] = {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": "admin", "domain": {"id": "default"}}},
    }
    try:
        answer = _log_in(f"{wanted.url(5000)}/v3/auth/tokens", {"auth": auth}, verify)
        if answer.status_code == 401:
            raise exceptions.ConfigurationError(
                reason=f"the password in {clouds.secure_file(str(CLOUDS))} is not the admin's; correct it there."
            )
        answer.raise_for_status()
        listed = requests.get(
            f"{wanted.url(8774)}/v2.1/os-services",
            headers={"X-Auth-Token": answer.headers["X-Subject-Token"]},
            verify=verify,
            timeout=START_SECONDS,
        )
        listed.raise_for_status()
    except requests.RequestException as error:
        raise exceptions.ConfigurationError(reason=f"the cloud does not answer: {error}") from error
    services = listed.json()["services"]
    machine.manage("config", "check")
    up = sum(service["state"] == "up" for service in services)
    return f"login works, {up} of {len(services)} daemons with a heartbeat are up"
