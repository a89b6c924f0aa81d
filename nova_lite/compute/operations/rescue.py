"""Rescue and unrescue on the host."""

from __future__ import annotations

import msgspec

from nova_lite.base import exceptions
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand, Image
from nova_lite.virt.driver import Rescuing, SpawnSpec


def rescue_instance(host: LocalHost, command: ActionCommand) -> None:
    """Boot the guest from a rescue image.

    ``payload``: ``image``, its kernel and ramdisk in ``images``, and ``admin_password``.
    """
    driver = _rescuing(host, command)
    image = msgspec.convert(command.payload["image"], Image)
    spec = SpawnSpec(
        instance=command.instance,
        generation=command.generation,
        vifs=command.instance.vifs,
        image=image,
        images={image.id: image, **msgspec.convert(command.payload["images"], dict[str, Image])},
        injected_files={},
        admin_password=command.payload.get("admin_password"),
        fence=lambda: None,
        volumes=host.volume_paths(command.instance),
    )
    host.driver.plug_vifs(command.instance, command.instance.vifs)
    driver.rescue(spec, host.conf.shutdown_timeout)


def unrescue_instance(host: LocalHost, command: ActionCommand) -> None:
    driver = _rescuing(host, command)
    host.driver.plug_vifs(command.instance, command.instance.vifs)
    driver.unrescue(command.instance.uuid)


def _rescuing(host: LocalHost, command: ActionCommand) -> Rescuing:
    host.require_domain(command)
    if not isinstance(host.driver, Rescuing):
        raise exceptions.NotImplementedByDriver(operation="rescue")
    return host.driver
