"""Hosts of guests that move between them, and what the guests notice of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects import DiskPlace, LeftDisks, MigrationControl, MigrationProgress
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt.conftest import PATIENCE, whole_lines
from tests.support.waiting import wait_for


def arriving(spec: SpawnSpec, generation: int = 2, **changes: Any) -> SpawnSpec:
    flavor = msgspec.structs.replace(spec.instance.flavor, **changes)
    instance = msgspec.structs.replace(spec.instance, flavor=flavor)
    return msgspec.structs.replace(spec, instance=instance, generation=generation)


def evacuated(spec: SpawnSpec, lost: LibvirtDriver, generation: int = 2) -> SpawnSpec:
    place = DiskPlace(host=lost.host, generation=spec.generation, marks=lost.shared_disks.view().marks)
    left = LeftDisks(places=[place], required=True)
    return msgspec.structs.replace(spec, generation=generation, disks=left)


def state(driver: LibvirtDriver, spec: SpawnSpec) -> PowerState | None:
    try:
        return driver.guests.get(spec.instance.uuid).power_state
    except exceptions.DomainNotFound:
        return None


def instance_path(driver: LibvirtDriver, spec: SpawnSpec) -> Path:
    return Path(driver.conf.state_path, "instances", spec.instance.uuid)


def counts(driver: LibvirtDriver, spec: SpawnSpec) -> list[tuple[int, float]]:
    return scripts.counts(whole_lines(driver, spec.instance.uuid))


def wait_for_count(driver: LibvirtDriver, spec: SpawnSpec, beyond: int) -> None:
    wait_for(f"count beyond {beyond}", lambda: (found := counts(driver, spec)) and found[-1][0] > beyond, PATIENCE)


def go_on(progress: MigrationProgress) -> MigrationControl:
    return MigrationControl.CONTINUE


def migrate(source: LibvirtDriver, destination: LibvirtDriver, spec: SpawnSpec) -> float:
    """Migrate in the three steps of the hosts. Return the seconds of the last step."""
    offered = source.live_moves.check_source(spec.instance.uuid)
    destination.live_moves.check_destination(offered)
    ready = destination.live_moves.prepare(spec, offered)
    started = time.monotonic()
    source.live_moves.migrate(spec.instance.uuid, ready, go_on)
    return time.monotonic() - started


def lines(driver: LibvirtDriver, spec: SpawnSpec, start: str) -> list[str]:
    text = whole_lines(driver, spec.instance.uuid)
    return [line.strip() for line in text.splitlines() if line.startswith(start)]


def run_and_mark(driver: LibvirtDriver, spec: SpawnSpec, found: str) -> None:
    wait_for("mark", lambda: lines(driver, spec, "mark written"), PATIENCE)
    assert lines(driver, spec, "on disk:")[-1].startswith(f"on disk: {found},")
