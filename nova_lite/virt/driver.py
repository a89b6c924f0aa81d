"""A hypervisor as a registry of its abilities (`nova_lite.virt.abilities`), and the loading of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions, faults, plugins
from nova_lite.objects import VIF, IncidentKind, Instance, VolumeKey
from nova_lite.virt import abilities

NAMESPACE = "nova_lite.virt.drivers"

#: Failpoints of a driver's methods, by ability.
POINTS = {
    "guests": {"spawn": "domain/spawn", "destroy": "domain/destroy"},
    "snapshots": {"take": "snapshot"},
    "backups": {"take": "snapshot"},
    "volume_copies": {"swap": "swap"},
}

#: Abilities that every driver has.
REQUIRED = ("guests", "power", "machine")


class Unsupported:
    """An ability that a driver lacks, which is false. Each of its methods raises `NotImplementedByDriver`.

    ``operation``: words for the user; without them, the method's name. ``others``: words for single methods.
    """

    def __init__(self, operation: str | None = None, **others: str) -> None:
        self._operation = operation
        self._others = others

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        raise exceptions.NotImplementedByDriver(operation=self._others.get(method) or self._operation or method)


def _lacking(operation: str | None = None, **others: str) -> Any:
    return Unsupported(operation, **others)


class NoNetworks(abilities.Networks):
    """Networks of a driver whose guests have no interfaces."""

    def plug(self, instance: Instance, vifs: list[VIF]) -> None:
        if vifs:
            raise exceptions.NotImplementedByDriver(operation="interfaces")

    def unplug(self, instance_uuid: str) -> None:
        """Do nothing: there are none."""


def _no_key(volume_id: str) -> VolumeKey:
    raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="this host has no conductor")


def _no_tpm_key(instance_uuid: str) -> VolumeKey:
    raise exceptions.TPMKeyUnavailable(instance_uuid=instance_uuid, reason="this host has no conductor")


def _no_disk_key(instance_uuid: str, role: str) -> VolumeKey:
    raise exceptions.DiskKeyUnavailable(instance_uuid=instance_uuid, role=role, reason="this host has no conductor")


class ComputeDriver:
    """A hypervisor: its abilities. ``conf`` is oslo.config's object, ``host`` the name of the compute host.

    ``fetch_image(image, path)`` writes an image's verified bytes to a new file. A driver sets `guests`, `power` and
    `machine`, and every other ability that it has.
    """

    guests: abilities.Guests
    power: abilities.Power
    machine: abilities.Machine

    networks: abilities.Networks = NoNetworks()
    interfaces: abilities.Interfaces = _lacking("attaching interfaces")
    filters: abilities.Filters = _lacking("security groups")
    probes: abilities.Probes = _lacking("probes of packets")
    definitions: abilities.Definitions = _lacking("defining a domain again")
    hotplug: abilities.Hotplug = _lacking("changing vCPUs and memory of a running guest")
    standby: abilities.Standby = _lacking()
    rescue: abilities.Rescue = _lacking("rescue")
    consoles: abilities.Consoles = _lacking(
        "console output", vnc="VNC consoles", serial="serial consoles", spice="SPICE consoles"
    )
    passwords: abilities.Passwords = _lacking("setting passwords")
    crash_dumps: abilities.CrashDumps = _lacking("trigger_crash_dump")
    diagnostics: abilities.GuestDiagnostics = _lacking("diagnostics")
    statistics: abilities.Statistics = _lacking("statistics")
    health: abilities.Health = _lacking("health checks")
    snapshots: abilities.Snapshots = _lacking("snapshot")
    backups: abilities.Backups = _lacking("incremental backup")
    moves: abilities.Moves = _lacking("resize")
    live_moves: abilities.LiveMoves = _lacking("live migration")
    volumes: abilities.Volumes = _lacking("attaching volumes")
    volume_copies: abilities.VolumeCopies = _lacking("copying volumes in use")
    volume_files: abilities.VolumeFiles = _lacking("work on the files of volumes")
    shares: abilities.Shares = _lacking("shares")
    points: abilities.Points = _lacking("snapshot points")
    clones: abilities.Clones = _lacking("cloning servers")
    shared_disks: abilities.SharedDisks = _lacking("shared disks")
    disk_checks: abilities.DiskChecks = _lacking("disk checks")
    images: abilities.Images = _lacking("image cache")

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: abilities.FetchImage) -> None:
        self.conf = conf
        self.host = host
        self.fetch_image = fetch_image
        #: Returns the key of an encrypted volume of a guest, or raises `VolumeKeyUnavailable`. The host sets it.
        self.volume_key: abilities.GetVolumeKey = _no_key
        #: Returns the CPU baseline of the host's aggregates; "" if they have none. The host sets it.
        self.cpu_baseline: Callable[[], str] = lambda: ""
        #: Returns the key of the TPM of a server here, or raises `TPMKeyUnavailable`. The host sets it.
        self.tpm_key: abilities.GetVolumeKey = _no_tpm_key
        #: Returns the key of an encrypted disk of a server here, or raises `DiskKeyUnavailable`. The host sets it.
        self.disk_key: abilities.GetDiskKey = _no_disk_key

    def init_host(self) -> None:
        """Connect and check the host. Raises `HypervisorUnavailable` (retried) or `ConfigurationError` (fatal)."""

    def guard_arguments(self) -> list[str]:
        """Return arguments by which the host's guard finds the guests. By default they are qemu's processes."""
        return []

    def wait_for_events(self, callback: Callable[[str, IncidentKind | None], None]) -> None:
        """Call ``callback(uuid, incident)`` whenever a domain's power state changes, or an incident
        happens. By default never: polling notices a changed state and a crash, but no other incident."""
        del callback


def load_compute_driver(conf: cfg.ConfigOpts, host: str, fetch_image: abilities.FetchImage) -> ComputeDriver:
    """Return the driver named by ``[DEFAULT] compute_driver``. Raises `ConfigurationError`."""
    (driver,) = plugins.load(NAMESPACE, [conf.compute_driver], "[DEFAULT] compute_driver")
    loaded: ComputeDriver = driver(conf, host, fetch_image)
    if missing := [name for name in REQUIRED if not hasattr(loaded, name)]:
        raise exceptions.ConfigurationError(
            reason=f"[DEFAULT] compute_driver = {conf.compute_driver}: the driver lacks {', '.join(missing)}."
        )
    for ability, points in POINTS.items():
        if getattr(loaded, ability):
            faults.methods(getattr(loaded, ability), points)
    return loaded


def instances_path(conf: cfg.ConfigOpts) -> str:
    """Return the directory of instances' disks and state: ``<state_path>/instances`` unless configured."""
    return conf.instances_path or os.path.join(conf.state_path, "instances")


def snapshots_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the directory in which this host makes image files."""
    return os.path.join(instances_path(conf), "_snapshots", os.path.basename(host))


def last_lines(text: str, length: int | None) -> str:
    """Return the last ``length`` lines, without the final newline, so that splitting at newlines gives ``length``
    lines.

    None: the whole text, unchanged.
    """
    if length is None:
        return text
    return "\n".join(text.removesuffix("\n").split("\n")[-length:]) if length > 0 else ""
