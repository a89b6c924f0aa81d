"""Configuration options, one group per module. ``nova_lite.conf.opts`` lists them for oslo-config-generator.

Every option has a help text that gives its purpose and when to change it. `docs/reference/configuration.md` is
generated from these texts. What no operator decides is a field of `nova_lite.base.timing`, or a constant next to its
user (docs/adr/0050-an-option-is-something-that-an-operator-decides.md).

- `opts`, `config_files`, `libraries`: entry point of oslo-config-generator, checks of files, and defaults of
  libraries
- `service_client`: options of a section for another OpenStack service
- `api`, `conductor`, `scheduler`, `compute`, `base`, `database`, `rpc`, `upgrade_levels`: daemons, database, and
  messages
- `libvirt`, `qemu`, `fake`, `pci`, `vxlan`, `consoles`, `metadata`: hypervisors, devices, tunnels, consoles, and
  metadata
- `identity`, `ldap`, `oidc`, `join`, `quota`: users and hosts of the cloud
- `image`, `glance`, `network`, `neutron`, `volume`, `cinder`, `dns`, `load_balancer`: services and their backends
- `server_backups`, `replication`, `balance`, `host_health`: backups, second site, and care for hosts
- `metrics`, `otel`, `audit`, `notifications`: metrics, traces, audit log, and notifications
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

from oslo_config import cfg, iniparser
from oslo_log import log

from nova_lite.base import journal
from nova_lite.conf import (
    api,
    audit,
    balance,
    base,
    compute,
    conductor,
    consoles,
    database,
    dns,
    fake,
    host_health,
    identity,
    image,
    join,
    ldap,
    libraries,
    libvirt,
    load_balancer,
    metadata,
    metrics,
    network,
    notifications,
    oidc,
    otel,
    pci,
    qemu,
    quota,
    replication,
    rpc,
    scheduler,
    server_backups,
    upgrade_levels,
    volume,
    vxlan,
)

GROUPS = (
    base,
    api,
    audit,
    balance,
    compute,
    conductor,
    consoles,
    database,
    dns,
    fake,
    host_health,
    identity,
    image,
    join,
    ldap,
    libvirt,
    load_balancer,
    metadata,
    metrics,
    network,
    notifications,
    oidc,
    otel,
    pci,
    qemu,
    quota,
    replication,
    rpc,
    scheduler,
    server_backups,
    upgrade_levels,
    volume,
    vxlan,
)

#: Place of an option in the errors of oslo.config, with the path of the file.
_LOCATION = re.compile(r"from LocationInfo\(location=<.*?>, detail='(.*?)'\)")

CONFIG_FILES = ["/etc/nova-lite/nova-lite.conf"]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register all our options except those of `glance`, `cinder` and `neutron`, which `load` registers on demand."""
    for module in GROUPS:
        module.register_opts(conf)


def load(argv: list[str] | None = None, prog: str | None = None) -> cfg.ConfigOpts:
    """Parse the command line and configuration files into oslo.config's global object, which is returned.

    oslo.messaging registers some of its options only there, so daemons have to use that object. A mistake in a file or
    a flag ends the process with one line and status 1.
    """
    conf = cfg.CONF
    register_opts(conf)
    log.register_options(conf)
    libraries.set_log_defaults()
    try:
        conf(argv, project="nova-lite", prog=prog, default_config_files=existing_config_files())
        if conf.image.backend == "glance":
            # Loading keystoneauth and requests would add a tenth to the startup of a small daemon.
            from nova_lite.conf import glance

            glance.register_opts(conf)
            _read_all(conf, glance.list_opts())
        if conf.volume.backend == "cinder":
            from nova_lite.conf import cinder

            cinder.register_opts(conf)
            _read_all(conf, cinder.list_opts())
        if conf.network.backend == "neutron":
            from nova_lite.conf import neutron

            neutron.register_opts(conf)
            _read_all(conf, neutron.list_opts())
        check(conf)
    except cfg.ConfigFilesNotFoundError as error:
        sys.exit(journal.error(f"{prog or 'nova-lite'}: configuration file not found: {error}"))
    except (cfg.Error, ValueError) as error:
        sys.exit(journal.error(f"{prog or 'nova-lite'}: bad configuration: {described(error)}"))
    return conf


def described(error: Exception) -> str:
    """Return the text of an error, for operators.

    It has no line of a file that cannot be parsed, since that may hold a secret.
    """
    cause = error.__context__
    if isinstance(error, cfg.ConfigFileParseError) and isinstance(cause, iniparser.ParseError):
        return f"Failed to parse {error.config_file}: line {cause.lineno}: {cause.msg}"
    return _LOCATION.sub(r"in \1", str(error))


def check(conf: cfg.ConfigOpts) -> None:
    """Read every option of `register_opts`. Raises `ValueError` or `cfg.Error` for a mistake in a file."""
    for module in GROUPS:
        _read_all(conf, module.list_opts())


def _read_all(conf: cfg.ConfigOpts, listed: Mapping[str, Iterable[cfg.Opt]]) -> None:
    """Read every option, so that a mistake in a file is found now. oslo.config parses a value only when it is read."""
    for group, opts in listed.items():
        section = conf if group == "DEFAULT" else conf[group]
        for opt in opts:
            try:
                getattr(section, opt.dest)
            except cfg.ConfigSourceValueError as error:
                named = str(error).replace(f"option {opt.name} ", f"option [{group}] {opt.name} ", 1)
                raise type(error)(named) from error


def existing_config_files() -> list[str]:
    import os

    return [path for path in CONFIG_FILES if os.path.exists(path)]
