"""The fake driver for tests of clients: a server's metadata, or its flavor, slows its guest down or makes it fail.

``nova_lite:fail`` names operations (`OPERATIONS`) that fail, separated by commas: ``build, stop``. ``build@host1``
fails on that host only. ``nova_lite:delay`` is the number of seconds that each of these operations takes longer. Both
are metadata of the server, or extra specs of its flavor; metadata win. They are read when a guest is built, and stay in
``rules/<uuid>.json`` beside its domain.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.objects import Instance
from nova_lite.virt import fake
from nova_lite.virt.abilities import FetchImage, SpawnSpec

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


#: Operations of an existing guest, by ability and method.
RULED = {
    ("guests", "destroy"): "delete",
    ("power", "on"): "start",
    ("power", "off"): "stop",
    ("power", "reboot"): "reboot",
    ("standby", "pause"): "pause",
    ("standby", "suspend"): "suspend",
    ("snapshots", "take"): "snapshot",
    ("volumes", "attach"): "attach-volume",
}


class RuledFakeDriver(fake.FakeDriver):
    """Fake driver whose guests follow their rules."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage) -> None:
        super().__init__(conf, host, fetch_image)
        self._rules_path = os.path.join(os.path.dirname(self.hypervisor.path), "rules")
        self._wrap("guests", "spawn", lambda spec: self._record(spec).apply("build", self.host))
        self._wrap("moves", "finish", lambda spec: self._record(spec).apply("resize", self.host))
        for (ability, method), operation in RULED.items():
            self._wrap(ability, method, functools.partial(self._apply, operation))

    def _wrap(self, ability: str, method: str, before: Callable[[Any], None]) -> None:
        """Call ``before`` with the first argument before each call of a method, also by other methods of the driver."""
        target = getattr(self, ability)
        call = getattr(target, method)

        def ruled(subject: Any, *arguments: Any) -> Any:
            before(subject)
            return call(subject, *arguments)

        setattr(target, method, ruled)

    def init_host(self) -> None:
        super().init_host()
        files.remove_unfinished(files.private_directory(self._rules_path), self.host)

    # --- rules

    def _record(self, spec: SpawnSpec) -> Rules:
        """Keep the rules of a new guest, for all hosts: it may migrate."""
        rules = rules_of(spec.instance)
        content = msgspec.json.encode(rules)
        files.write_atomically(self._rules_file(spec.instance.uuid), content, durable=False, writer=self.host)
        return rules

    def _apply(self, operation: str, instance_uuid: str) -> None:
        if operation != "delete" or os.path.exists(self.hypervisor.file("domains", instance_uuid)):
            self._rules(instance_uuid).apply(operation, self.host)

    def _rules(self, instance_uuid: str) -> Rules:
        try:
            with open(self._rules_file(instance_uuid), "rb") as file:
                return msgspec.json.decode(file.read(), type=Rules)
        except FileNotFoundError:
            return Rules()

    def _rules_file(self, instance_uuid: str) -> str:
        return os.path.join(self._rules_path, os.path.basename(instance_uuid) + ".json")
