"""Rescue and unrescue on the host."""

from __future__ import annotations

import msgspec

from nova_lite.base import exceptions
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand, Image
from nova_lite.virt.driver import Rescuing, SpawnSpec


def rescue_instance(host: LocalHost, ticket: ActionCommand) -> None:
    """``payload``: ``image`` to boot from, its kernel and ramdisk in ``images``, ``admin_password``."""
    driver = _rescuing(host, ticket)
    image = msgspec.convert(ticket.payload["image"], Image)
    spec = SpawnSpec(
        instance=ticket.instance,
        generation=ticket.generation,
        vifs=ticket.instance.vifs,
        image=image,
        images={image.id: image, **msgspec.convert(ticket.payload["images"], dict[str, Image])},
        injected_files={},
        admin_password=ticket.payload.get("admin_password"),
        fence=lambda: None,
        volumes=host.volume_paths(ticket.instance),
    )
    host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
    driver.rescue(spec, host.conf.compute.shutdown_timeout)


def unrescue_instance(host: LocalHost, ticket: ActionCommand) -> None:
    driver = _rescuing(host, ticket)
    host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
    driver.unrescue(ticket.instance.uuid)


def _rescuing(host: LocalHost, ticket: ActionCommand) -> Rescuing:
    host.require_domain(ticket)
    if not isinstance(host.driver, Rescuing):
        raise exceptions.NotImplementedByDriver(operation="rescue")
    return host.driver
