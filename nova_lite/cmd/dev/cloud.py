"""A whole cloud in one process: all daemons, an in-memory transport, SQLite, and the fake driver."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from typing import Any, NamedTuple

import msgspec
import webob
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.api.http import deploy
from nova_lite.api.http.deploy import App
from nova_lite.api.identity import directory as users
from nova_lite.api.identity import tokens
from nova_lite.api.identity.records import SYSTEM
from nova_lite.api.identity.replica import Replica
from nova_lite.base import exceptions, master_keys, trees
from nova_lite.cmd.api import Site, Worker, load_apps
from nova_lite.cmd.compute import ComputeDaemon
from nova_lite.cmd.conductor import Conductor
from nova_lite.cmd.dev import configuration, consoles, seed
from nova_lite.cmd.dev.configuration import PATHS
from nova_lite.cmd.dev.consoles import GuestConsoles
from nova_lite.cmd.dev.seed import ADMIN, Seed, Seeder
from nova_lite.cmd.scheduler import SchedulerDaemon
from nova_lite.compute.api import API
from nova_lite.daemon import service, sockets
from nova_lite.db.core.engine import Database
from nova_lite.db.identity.identity_records import DatabaseStore
from nova_lite.db.migrations import schema
from nova_lite.virt import fake_hypervisor

LOG = logging.getLogger(__name__)

DEFAULT_SEED = os.path.join(os.path.dirname(__file__), "default.yaml")
FAULTS_SEED = os.path.join(os.path.dirname(__file__), "faults.yaml")

_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - only compared
#: Directory in memory on Linux, and the free space in bytes with which it is used.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only directories of random names are made there
_ENOUGH_MEMORY = 32 * 1024**2
_REMOVALS = 100
_START_TIMEOUT = 30.0
_POLL = 0.005


class Options(NamedTuple):
    """Options of the command line. ``url``: where clients reach it; None: the address and port that it listens on."""

    listen: str
    port: int
    url: str | None
    hosts: int
    password: str
    faults: bool
    seeds: list[str]
    config_files: list[str]
    verbose: bool


class Account(NamedTuple):
    """A user with a password, in a project."""

    user: str
    project: str
    password: str


class DevCloud:
    """A running cloud. `start` returns when it is ready; `stop` leaves nothing behind.

    ``directory``: of all its files, which `stop` removes. ``accounts``: its users, admin first.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._undo = contextlib.ExitStack()
        self._daemons: list[service.Daemon] = []
        self.url = ""
        self.directory = ""
        self.accounts: list[Account] = []

    def start(self) -> None:
        """Start the daemons and make the content. Raises `ConfigurationError`; call `stop` then, too."""
        options = self._options
        seeds = [seed.load(path) for path in (DEFAULT_SEED, *([FAULTS_SEED] if options.faults else []), *options.seeds)]
        sock = _listen(options.listen, options.port)
        self._undo.callback(sock.close)
        console_socks = {name: _listen(options.listen, 0) for name in ("novnc", "serial")}
        for console_sock in console_socks.values():
            self._undo.callback(console_sock.close)
        console_ports = {name: console_sock.getsockname()[1] for name, console_sock in console_socks.items()}
        self.directory = self._make_directory(_fast_directory())
        self.url = (options.url or _url(options.listen, sock.getsockname()[1])).rstrip("/")
        driver = "fake-rules" if options.faults else "fake"
        own_file = configuration.write(self.directory, self._make_directory(None), self.url, driver, console_ports)
        config_files = [own_file, *options.config_files]
        conf = configuration.load(config_files)
        service.setup_logging(conf, "nova-lite-dev")
        if not options.verbose:
            logging.getLogger().setLevel(logging.WARNING)
        schema.create(conf)
        master_keys.provide(os.path.join(self.directory, configuration.VOLUME_KEYS))
        _create_admin(conf, options.password)
        broker = rpc.MemoryBroker()
        conductor = Conductor(conf, broker.connect)
        self._start(conductor)
        consoles_of_guests = GuestConsoles()
        self._undo.callback(consoles_of_guests.close)
        _control_hosts(conf, seeds, options.hosts, consoles_of_guests.ports)
        for name in _host_names(options.hosts):
            self._start(ComputeDaemon(configuration.load(config_files, name), broker.connect))
        scheduler = SchedulerDaemon(conf, broker.connect)
        self._start(scheduler)
        compute = API()
        apps = _load_apps(conf, compute)
        app = deploy.UrlMap({PATHS[name]: app for name, app in apps.items()}, mounts=True)
        gate = _Gate(app, {name: self.url + PATHS[name] for name in apps})
        self._start(Worker(conf, compute, [Site("all", gate, [sock], None)], connect=broker.connect))
        for proxy in consoles.make_proxies(conf, console_socks, broker.connect):
            self._start(proxy)
        _wait_for_hosts(scheduler)
        assert conductor.manager is not None
        seeder = Seeder(app, conductor.manager.db, options.password)
        for content in seeds:
            seeder.add(content)
        seeder.wait_for_servers()
        self.accounts = [Account(ADMIN, ADMIN, options.password)]
        self.accounts += [
            Account(user.name, user.project, user.password or options.password)
            for content in seeds
            for user in content.users
        ]
        gate.open()

    def begin_stop(self) -> None:
        """Let waits for daemons end. For signal handlers."""
        for daemon in self._daemons:
            daemon.stopping.set()

    def stop(self) -> None:
        """Stop the daemons, newest first, and remove all files."""
        self.begin_stop()
        self._undo.close()

    def _make_directory(self, parent: str | None) -> str:
        directory = tempfile.mkdtemp(prefix="nova-lite-dev-", dir=parent)
        self._undo.callback(_remove, directory)
        return directory

    def _start(self, daemon: service.Daemon) -> None:
        self._daemons.append(daemon)
        self._undo.callback(daemon.stop)
        daemon.start()
        threading.Thread(target=daemon.supervise, name=f"supervise-{daemon.binary}", daemon=True).start()


def _load_apps(conf: cfg.ConfigOpts, compute: API) -> dict[str, App]:
    """Return the enabled APIs by name. Raises `ConfigurationError` for one without a path."""
    apps = load_apps(conf, compute)
    if without := sorted(apps.keys() - PATHS.keys()):
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: nova-lite dev does not serve {', '.join(without)}, but {', '.join(PATHS)}."
        )
    return apps


class _Gate:
    """WSGI application that serves the cloud once it is ready. Its root lists the services, by their names."""

    def __init__(self, app: App, urls: dict[str, str]) -> None:
        self._app = app
        self._document = json.dumps({"services": urls}).encode()
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if not self._is_open:
            response = webob.Response(b"The cloud is starting.\n", 503, content_type="text/plain")
            response.headers["Retry-After"] = "1"
            return response(environ, start_response)
        if environ.get("PATH_INFO", "") in ("", "/"):
            return webob.Response(self._document, content_type="application/json")(environ, start_response)
        return self._app(environ, start_response)


def _listen(address: str, port: int) -> socket.socket:
    try:
        return sockets.listen(address, port)
    except exceptions.ConfigurationError as error:
        raise exceptions.ConfigurationError(f"{error.kwargs['reason']} Use another --port; 0: a free one.") from error


def _remove(directory: str) -> None:
    """Remove the directory. A job of a stopped host may still write there, so try several times."""
    for _ in range(_REMOVALS):
        left = trees.remove(directory)
        if not os.path.lexists(directory):
            return
        time.sleep(_POLL)
    LOG.warning("%s could not be removed: %s", directory, ", ".join(map(str, left)))


def _fast_directory() -> str | None:
    """Return a directory in memory for rows and small files, as SQLite waits for the disk at each commit.

    None: the default directory for temporary files.
    """
    try:
        free = shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:
        return None
    return _SHARED_MEMORY if free >= _ENOUGH_MEMORY and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None


def _url(address: str, port: int) -> str:
    host = "127.0.0.1" if address in _ANY_ADDRESS else address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _create_admin(conf: cfg.ConfigOpts, password: str) -> None:
    """Make the tokens' key and the user admin, as ``nova-lite-manage user init`` does."""
    db = Database(conf)
    try:
        with Replica(DatabaseStore(db)).changing() as content:
            tokens.add_key(content, conf.identity.max_active_keys)
            project = users.add_project(content, ADMIN)
            admin = users.add_user(content, ADMIN, users.new_password(password), project)
            users.grant(admin, project, ADMIN)
            users.grant(admin, SYSTEM, ADMIN)
    finally:
        db.close()


def _host_names(count: int) -> list[str]:
    return [f"host{number}" for number in range(1, count + 1)]


def _control_hosts(conf: cfg.ConfigOpts, seeds: list[Seed], count: int, console_ports: dict[str, int]) -> None:
    """Set the consoles of all hosts, and the behaviour of hosts that seed files describe."""
    for name in _host_names(count):
        fake_hypervisor.write_control(conf, name, console_ports=console_ports)
    for content in seeds:
        for name, values in content.hosts.items():
            if name not in _host_names(count):
                raise exceptions.ConfigurationError(
                    reason=f"the seed names a host that is not there: {name}. --hosts {count} makes host1 to "
                    f"host{count}."
                )
            given = {field: value for field, value in msgspec.structs.asdict(values).items() if value is not None}
            fake_hypervisor.write_control(conf, name, console_ports=console_ports, **given)


def _wait_for_hosts(scheduler: SchedulerDaemon) -> None:
    """Wait until the scheduler knows the hosts."""
    assert scheduler.manager is not None
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        try:
            scheduler.manager.require_hosts()
            return
        except exceptions.ServiceUnavailable:
            if time.monotonic() > deadline or scheduler.stopping.is_set():
                raise
        time.sleep(_POLL)
