"""The fake driver for tests of clients: a server's metadata, or its flavor, slows its guest down or makes it fail.

``nova_lite:fail`` names operations (`OPERATIONS`) that fail, separated by commas: ``build, stop``. ``build@host1``
fails on that host only. ``nova_lite:delay`` is the number of seconds that each of these operations takes longer. Both
are metadata of the server, or extra specs of its flavor; metadata win. They are read when a guest is built, and stay in
``rules/<uuid>.json`` beside its domain.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.objects import BlockDevice, DiskSource, Instance, VolumeSource
from nova_lite.virt import driver, fake

FAIL, DELAY = "nova_lite:fail", "nova_lite:delay"

OPERATIONS = ("build", "start", "stop", "reboot", "pause", "suspend", "snapshot", "resize", "attach-volume", "delete")

#: Longest delay in seconds.
MAX_DELAY = 3600.0


class Rules(msgspec.Struct, frozen=True):
    """The rules of one guest. ``fail``: operations, each with ``@HOST`` or without."""

    fail: frozenset[str] = frozenset()
    delay: float = 0.0

    def apply(self, operation: str, host: str) -> None:
        """Wait, and raise `VirtDriverError` if the operation has to fail on this host."""
        time.sleep(self.delay)
        if self.fail & {operation, f"{operation}@{host}"}:
            raise exceptions.VirtDriverError(reason=f"{operation} fails on {host}, as {FAIL} demands")


def rules_of(instance: Instance) -> Rules:
    """Return the rules of a server. A value that cannot be read is no rule."""
    values = {**instance.flavor.extra_specs, **instance.metadata}
    names = {name.strip() for name in values.get(FAIL, "").split(",")}
    try:
        delay = float(values.get(DELAY, "0"))
    except ValueError:
        delay = 0.0
    known = frozenset(name for name in names if name.partition("@")[0] in OPERATIONS)
    return Rules(known, min(delay, MAX_DELAY) if delay > 0 else 0.0)


class RuledFakeDriver(fake.FakeDriver):
    """Fake driver whose guests follow their rules."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: driver.FetchImage) -> None:
        super().__init__(conf, host, fetch_image)
        self._rules_path = os.path.join(os.path.dirname(self.path), "rules")

    def init_host(self) -> None:
        super().init_host()
        files.remove_unfinished(files.private_directory(self._rules_path), self.host)

    def spawn(self, spec: driver.SpawnSpec) -> None:
        self._record(spec).apply("build", self.host)
        super().spawn(spec)

    def finish_migration(self, spec: driver.SpawnSpec, source: DiskSource, power_on: bool) -> None:
        self._record(spec).apply("resize", self.host)
        super().finish_migration(spec, source, power_on)

    def destroy(self, instance_uuid: str) -> None:
        if os.path.exists(self._file("domains", instance_uuid)):
            self._apply("delete", instance_uuid)
        super().destroy(instance_uuid)

    def power_on(self, instance_uuid: str) -> None:
        self._apply("start", instance_uuid)
        super().power_on(instance_uuid)

    def power_off(self, instance_uuid: str, timeout: int) -> None:
        self._apply("stop", instance_uuid)
        super().power_off(instance_uuid, timeout)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        self._apply("reboot", instance_uuid)
        super().reboot(instance_uuid, reboot_type, timeout)

    def pause(self, instance_uuid: str) -> None:
        self._apply("pause", instance_uuid)
        super().pause(instance_uuid)

    def suspend(self, instance_uuid: str) -> None:
        self._apply("suspend", instance_uuid)
        super().suspend(instance_uuid)

    def snapshot(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        self._apply("snapshot", instance_uuid)
        super().snapshot(instance_uuid, target, check)

    def attach_volume(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        self._apply("attach-volume", instance_uuid)
        super().attach_volume(instance_uuid, device, path)

    # --- rules

    def _record(self, spec: driver.SpawnSpec) -> Rules:
        """Keep the rules of a new guest, for all hosts: it may migrate."""
        rules = rules_of(spec.instance)
        content = msgspec.json.encode(rules)
        files.write_atomically(self._rules_file(spec.instance.uuid), content, durable=False, writer=self.host)
        return rules

    def _apply(self, operation: str, instance_uuid: str) -> None:
        self._rules(instance_uuid).apply(operation, self.host)

    def _rules(self, instance_uuid: str) -> Rules:
        try:
            with open(self._rules_file(instance_uuid), "rb") as file:
                return msgspec.json.decode(file.read(), type=Rules)
        except FileNotFoundError:
            return Rules()

    def _rules_file(self, instance_uuid: str) -> str:
        return os.path.join(self._rules_path, os.path.basename(instance_uuid) + ".json")
