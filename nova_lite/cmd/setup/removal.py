"""Removal of what the set-up made."""

from __future__ import annotations

from pathlib import Path

import yaml

from nova_lite.base import exceptions
from nova_lite.base.trees import Left
from nova_lite.cmd.setup import (
    balancer,
    broker,
    clouds,
    cluster,
    controller,
    directories,
    galera,
    guests,
    libvirt,
    machine,
    monitoring,
)
from nova_lite.rpc import controllers

_UNITS = tuple(
    f"nova-lite-{name}" for name in (*controller.DAEMONS, *controller.OPTIONAL, controller.REGISTRAR, "compute")
)
_FILES = (Path("/etc/sysusers.d/nova-lite.conf"), Path("/etc/tmpfiles.d/nova-lite.conf"))
#: Made by `tmpfiles.d`, also on machines without a conductor.
_SOCKETS = (Path("/run/nova-lite-conductor"), Path("/run/nova-lite-metadata"))
_USERS = ("nova-lite-api", "nova-lite-conductor", "nova-lite-scheduler", "nova-lite-console")


def run(is_confirmed: bool, purge: bool) -> None:
    """Remove daemons, accounts and files. Without confirmation, print what would go."""
    units = [name for name in _UNITS if machine.has_unit(name)]
    lines = [f"units {', '.join(units)}"] if units else []
    has_broker = broker.is_ours()
    others = _other_controllers()
    if others:
        lines.append("this machine's part of the cluster of brokers, HAProxy and keepalived")
    elif has_broker:
        lines.append(f"virtual host {broker.VHOST} and its accounts at the broker")
    has_files = any(path.exists() for path in (machine.CONFIGURATION, controller.STATE, monitoring.DIRECTORY))
    if purge and has_files:
        lines.append(f"{machine.CONFIGURATION}, {controller.STATE}, and the users of the daemons")
        if monitoring.DIRECTORY.exists():
            lines.append(f"{monitoring.DIRECTORY}, for Prometheus")
        lines.append("guests of this machine with their disks and networks, and its images and volumes")
        lines.append("all records of the cloud in SQLite")
    if not lines and has_files:
        print("No daemon of the set-up is on this machine. --purge removes its files.")
    elif not lines:
        print("Nothing of the set-up is on this machine.")
    elif not is_confirmed:
        print("This would remove:", *(f"  {line}" for line in lines), sep="\n")
        if purge and (left := directories.protected(controller.STATE, directories.own_hosts())):
            print("This would stay:", *(f"  {item}" for item in left), sep="\n")
        print("Run it again with --yes.")
    if not is_confirmed:
        return
    for unit in units:
        machine.run("systemctl", "disable", "--now", unit)
        (machine.UNITS / f"{unit}.service").unlink(missing_ok=True)
    machine.run("systemctl", "daemon-reload")
    if others:
        broker.leave_cluster()
    elif has_broker:
        broker.remove()
    balancer.remove()
    left = _purge() if purge else []
    if lines:
        print("Removed:", *(f"  {line}" for line in lines), sep="\n")
    if left:
        print("Left:", *(f"  {item}" for item in left), sep="\n")
    if failed := next((item for item in left if item.is_error), None):
        raise exceptions.ConfigurationError(reason=f"not everything could be removed: {failed}.")


def _other_controllers() -> list[str]:
    """Return the controllers besides this one, which continue with broker and database."""
    local = cluster.local()
    return [member.host for member in controllers.members(str(controller.KEYS)) if local and member.host != local.host]


def _purge() -> list[Left]:
    """Remove files, users, and the remains of guests in libvirt and the kernel. Return what stays."""
    path = controller.CLOUDS
    for name in _clouds(path):
        clouds.remove(str(path), name)
    if guests.INSTANCES.exists():
        guests.remove()
    libvirt.purge()
    cluster.remove_names()
    galera.remove()
    left = directories.remove_state(controller.STATE, directories.own_hosts())
    for directory in (machine.CONFIGURATION, *_SOCKETS, controller.BROKER_CERTIFICATES, galera.CERTIFICATES):
        left += directories.remove(directory)
    for file in _FILES:
        file.unlink(missing_ok=True)
    controller.authority_file().unlink(missing_ok=True)
    left += monitoring.remove(monitoring.DIRECTORY)
    for user in _USERS:
        if machine.succeeds("getent", "passwd", user):
            machine.run("userdel", user)
    for group in (*_USERS, "nova-lite"):
        if machine.succeeds("getent", "group", group):  # A user's own group may have gone with the user.
            machine.run("groupdel", group)
    return left


def _clouds(path: Path) -> list[str]:
    """Return the names of the clouds that were written by this program."""
    try:
        text = clouds.read(str(path))
        return [name for name in clouds.clouds_of(text) if clouds.marks(name)[0] in text]
    except yaml.YAMLError as error:
        raise exceptions.ConfigurationError(reason=f"{path} is not YAML.") from error
