"""Checks of the configuration of one daemon: what it says, and whether what the daemon needs can be reached.

They run in a process of their own, as the daemon's user where that is possible. So a file that the daemon cannot read
is found. Nothing is written: neither to the database, nor to the broker, nor to the hypervisor.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import HealthTiming
from nova_lite.cmd.manage.app import HAS_SQL, NO_SQL, explain
from nova_lite.conf import config_files
from nova_lite.conf.consoles import SPICE_WEB
from nova_lite.daemon.health import Health
from nova_lite.virt import rbd

Problems = Iterator[str]

#: Seconds to wait for an answer of the broker, and for any other answer.
_BROKER_SECONDS = 5.0
_ANSWER_SECONDS = 15.0


class Role(NamedTuple):
    """A program with a configuration file of its own. ``key``: the role of its signing key. ``user``: of its unit."""

    name: str
    key: str
    user: str
    problems: Callable[[cfg.ConfigOpts], Problems]
    reach: Callable[[cfg.ConfigOpts, Health], None] = lambda conf, health: None


def problems(conf: cfg.ConfigOpts, role: Role) -> Problems:
    """Return a sentence for each problem. ``conf`` is loaded from the role's files."""
    yield from _plugins(conf)
    if conf.service_down_time < 2 * conf.report_interval:
        yield (
            f"[DEFAULT] service_down_time = {conf.service_down_time} must be at least twice report_interval "
            f"({conf.report_interval}), or one late report takes a host out."
        )
    health = Health(HealthTiming(check_timeout=_ANSWER_SECONDS))
    yield from _transport(conf, role, health)
    yield from role.problems(conf)
    role.reach(conf, health)
    for name, reason in health.readiness_problems().items():
        if reason is not None and name != "started":
            yield f"{name}: {reason}"


def _plugins(conf: cfg.ConfigOpts) -> Problems:
    for (group, option), namespace in config_files.PLUGINS.items():
        value = (conf if group == "DEFAULT" else conf[group])[option]
        names = value if isinstance(value, list) else [value]
        yield from _choices(
            f"[{group}] {option}", names, [entry.name for entry in metadata.entry_points(group=namespace)]
        )


def _choices(option: str, names: list[str], known: list[str]) -> Problems:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            yield f"{option}: {name} is unknown; there are {', '.join(sorted(known))}.{hint}"


def _transport(conf: cfg.ConfigOpts, role: Role, health: Health) -> Problems:
    """Check the address of the broker, the daemon's signing key, and its account at the broker.

    The message bus is imported here only, because it loads slowly.
    """
    with warnings.catch_warnings(action="ignore"):
        from nova_lite import rpc

    key = role.key
    if key == rpc.API:
        from nova_lite.api.metadata.role import role_of

        key = role_of(conf)
    try:
        transport = rpc.Transport(conf, key)
    except exceptions.ConfigurationError as error:
        yield error.message
        return
    transport.cleanup()
    health.add("[DEFAULT] transport_url", lambda: rpc.log_in(conf, _BROKER_SECONDS))


def _schema(conf: cfg.ConfigOpts) -> Problems:
    if not HAS_SQL:
        yield f"[database] connection: {NO_SQL}."
        return
    from nova_lite.db.migrations import schema

    try:
        schema.check(conf)
    except exceptions.NovaLiteException as error:
        yield f"[database] connection: {explain(error)}"


def _schema_if_named(conf: cfg.ConfigOpts) -> Problems:
    """Check the schema if a file names the database: only on a conductor's machine one does."""
    found = conf.get_location("connection", "database")
    if found is not None and found.location is not cfg.Locations.opt_default:
        yield from _schema(conf)


def _reach_services(conf: cfg.ConfigOpts, health: Health) -> None:
    """Log in at Keystone for each service of OpenStack that provides images, volumes or networks."""
    for group, option, backend in (
        ("glance", "[image] backend", conf.image.backend),
        ("cinder", "[volume] backend", conf.volume.backend),
        ("neutron", "[network] backend", conf.network.backend),
    ):
        if backend == group:
            setting = f"{option} = {backend}"
            health.add(f"[{group}]", functools.partial(_reach_service, conf, group, setting))


def _reach_service(conf: cfg.ConfigOpts, group: str, setting: str) -> None:
    """Find a service in Keystone's catalog. Raises `ConfigurationError` or `ServiceUnavailable`."""
    from keystoneauth1.exceptions import ClientException

    from nova_lite.conf.service_client import load_adapter

    adapter = load_adapter(conf, group, setting)
    try:
        endpoint = adapter.get_endpoint()
    except ClientException as error:
        raise exceptions.ServiceUnavailable(f"{' '.join(str(error).split())}") from error
    if endpoint is None:
        raise exceptions.ConfigurationError(reason="Keystone's catalog has no endpoint of this service.")


def _writable(option: str, path: str) -> Problems:
    if not os.path.isdir(path):
        yield f"{option} = {path}: there is no such directory."
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield f"{option} = {path}: this daemon's user cannot write there."


# --- of each program


def _api(conf: cfg.ConfigOpts) -> Problems:
    """Check what is served, and where. The applications are loaded as the daemon loads them."""
    from nova_lite.cmd import api as daemon
    from nova_lite.compute.api import API

    unknown = list(_choices("[api] enabled_apis", conf.api.enabled_apis, list(daemon.ADDRESSES)))
    yield from unknown
    yield from _choices("[api] enabled_ssl_apis", conf.api.enabled_ssl_apis, conf.api.enabled_apis)
    if not unknown:
        try:
            served = daemon.load_apps(conf, API())
            yield from (
                f"[api] paste_config = {conf.api.paste_config}: there is no application {name}."
                for name in conf.api.enabled_apis
                if name not in served
            )
        except exceptions.ConfigurationError as error:
            yield error.message
    for name in conf.api.enabled_apis:
        if name in daemon.ADDRESSES:
            address, port = daemon.ADDRESSES[name]
            yield from _listen(f"[api] {address}", conf.api[address], f"[api] {port}", conf.api[port])


def _reach_from_api(conf: cfg.ConfigOpts, health: Health) -> None:
    _reach_services(conf, health)
    if conf.api.auth_strategy == "keystone" and "keystone_authtoken" in conf:
        health.add("[keystone_authtoken]", lambda: _log_in_at_keystone(conf))
    if conf.ldap.urls:
        health.add("[ldap] urls", lambda: _reach_directory(conf))
    if conf.oidc.issuers:
        health.add("[oidc] issuers", lambda: _reach_providers(conf))


def _reach_directory(conf: cfg.ConfigOpts) -> None:
    """Look for a user in the directory. Raises `ServiceUnavailable` with the cause."""
    from nova_lite.api.identity.ldap import LdapDirectory

    directory = LdapDirectory(conf)
    with _causes():
        directory.entries(directory.users, 1)


def _reach_providers(conf: cfg.ConfigOpts) -> None:
    """Read the keys of all OpenID Connect providers. Raises `ServiceUnavailable` with the cause."""
    from nova_lite.api.identity.oidc import OidcTokens

    with _causes():
        OidcTokens(conf).reach()


@contextlib.contextmanager
def _causes() -> Iterator[None]:
    """Replace the message of a `ServiceUnavailable`, which is for users, by its cause."""
    try:
        yield
    except exceptions.ServiceUnavailable as error:
        raise exceptions.ServiceUnavailable(str(error.__cause__ or error.message)) from error


def _log_in_at_keystone(conf: cfg.ConfigOpts) -> None:
    """Log in as the user that checks tokens. Raises `ServiceUnavailable`."""
    from keystoneauth1 import exceptions as keystone_errors
    from keystoneauth1 import loading, session

    options = conf.keystone_authtoken
    try:
        auth = loading.load_auth_from_conf_options(conf, "keystone_authtoken")
        session.Session(auth=auth, verify=not options.insecure and (options.cafile or True), timeout=5).get_token()
    except (keystone_errors.ClientException, cfg.Error) as error:
        raise exceptions.ServiceUnavailable(f"{' '.join(str(error).split())}") from error


def _listen(address_option: str, address: str, port_option: str, port: int) -> Problems:
    """Check that an address can be listened on. A port that is taken has to answer: the daemon may be running."""
    family, kind, protocol, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(target)
            return
        except OSError as error:
            failed = error
    if failed.errno == errno.EADDRNOTAVAIL:
        yield f"{address_option} = {address}: this machine has no such address."
    elif failed.errno != errno.EADDRINUSE:
        yield f"{port_option} = {port}: {failed.strerror}."
    else:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 2.0):
            return
        yield f"{port_option} = {port}: another program has this port of {address}, and does not answer."


def _compute(conf: cfg.ConfigOpts) -> Problems:
    yield from _writable("[DEFAULT] state_path", conf.state_path)
    if conf.image.backend == "local" and not os.access(conf.image.store_path, os.R_OK | os.X_OK):
        yield f"[image] store_path = {conf.image.store_path}: this host cannot read it, and so starts no guest."


def _reach_from_compute(conf: cfg.ConfigOpts, health: Health) -> None:
    _reach_services(conf, health)
    if conf.compute_driver == "libvirt":
        health.add("[libvirt] connection_uri", lambda: _open_libvirt(conf.libvirt.connection_uri))
    if conf.volume.backend == rbd.PROTOCOL:
        health.add("[volume] rbd_pool", lambda: _open_pool(conf, conf.volume.rbd_pool))
    if conf.libvirt.images_type == rbd.PROTOCOL:
        pool = conf.libvirt.images_rbd_pool or conf.volume.rbd_pool
        health.add("[libvirt] images_rbd_pool", lambda: _open_pool(conf, pool))


def _open_pool(conf: cfg.ConfigOpts, pool: str) -> None:
    try:
        rbd.Rbd(conf.volume.rbd_ceph_conf, conf.volume.rbd_user).images(pool)
    except exceptions.VirtDriverError as error:
        raise exceptions.ServiceUnavailable(str(error.kwargs["reason"])) from error


def _open_libvirt(uri: str) -> None:
    try:
        import libvirt
    except ImportError as error:
        raise exceptions.ConfigurationError(reason="libvirt's Python binding is not installed.") from error

    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    try:
        libvirt.openReadOnly(uri).close()
    except libvirt.libvirtError as error:
        raise exceptions.ServiceUnavailable(f"libvirt does not answer at {uri}: {error}") from error


def _proxy(conf: cfg.ConfigOpts) -> Problems:
    for option, path in (("[DEFAULT] cert", conf.cert), ("[DEFAULT] key", conf.key)):
        if path and not os.access(path, os.R_OK):
            yield f"{option} = {path}: this daemon's user cannot read it."


def _novncproxy(conf: cfg.ConfigOpts) -> Problems:
    yield from _proxy(conf)
    if not os.path.isdir(conf.web):
        yield f"[DEFAULT] web = {conf.web}: noVNC's files are not there; install Debian's package novnc."


def _spicehtml5proxy(conf: cfg.ConfigOpts) -> Problems:
    """Check the proxy's files only where guests may have SPICE. Set-ups write its configuration in any case."""
    if conf.spice.enabled:
        yield from _proxy(conf)
        conf.set_default("web", SPICE_WEB)
        if not os.path.isdir(conf.web):
            yield f"[DEFAULT] web = {conf.web}: the client's files are not there; install Debian's package spice-html5."


def _nothing(conf: cfg.ConfigOpts) -> Problems:
    return iter(())


_CONSOLE_USER = "nova-lite-console"

#: Roles by the name of the configuration file without its suffix. A file ``compute-N.conf`` is of role ``compute``.
ROLES = {
    role.name: role
    for role in (
        Role("api", "api", "nova-lite-api", _api, _reach_from_api),
        Role("conductor", "conductor", "nova-lite-conductor", _schema),
        Role("scheduler", "scheduler", "nova-lite-scheduler", _nothing),
        Role("compute", "compute", "root", _compute, _reach_from_compute),
        Role("novncproxy", "console", _CONSOLE_USER, _novncproxy),
        Role("serialproxy", "console", _CONSOLE_USER, _proxy),
        Role("spicehtml5proxy", "console", _CONSOLE_USER, _spicehtml5proxy),
        Role("manage", "manage", "root", _schema_if_named, _reach_services),
    )
}


def role_of_file(path: str) -> Role | None:
    """Return the role that reads a file, by the file's name, or None for a file of all daemons."""
    stem = os.path.basename(path).removesuffix(".conf")
    return ROLES.get("compute" if stem.startswith("compute-") else stem)
