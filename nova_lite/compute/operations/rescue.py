"""Rescue and unrescue on the host."""

from __future__ import annotations

import msgspec

from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand, Image
from nova_lite.virt.abilities import SpawnSpec


def rescue_instance(host: LocalHost, command: ActionCommand) -> None:
    """Boot the guest from a rescue image.

    ``payload``: ``image``, its kernel and ramdisk in ``images``, and ``admin_password``.
    """
    host.require_domain(command)
    start = host.driver.rescue.start
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
    host.driver.networks.plug(command.instance, command.instance.vifs)
    start(spec, host.conf.shutdown_timeout)


def unrescue_instance(host: LocalHost, command: ActionCommand) -> None:
    host.require_domain(command)
    end = host.driver.rescue.end
    host.driver.networks.plug(command.instance, command.instance.vifs)
    end(command.instance.uuid)
