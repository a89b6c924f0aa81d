"""Accepting a rebuild: the instance gets a new disk where it is, of the same image or of another one.

At acceptance it gets the next generation, and its claim is for that one: what its host still has of it belongs nowhere
from then on, and is replaced by the build or destroyed. Its addresses stay its own, and so does its place if the build
fails.
"""

from __future__ import annotations

from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import exception, states
from nova_lite.conductor.db import claims, keypairs, quotas
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.conductor.operations import create
from nova_lite.conductor.operations.own import Own
from nova_lite.context import RequestContext
from nova_lite.objects import Flavor, Image, RequestedDestination, RequestSpec

#: What the request may change of the instance besides image and key.
CHANGEABLE = (
    *("display_name", "display_description", "hostname", "metadata_", "user_data"),
    *("access_ip_v4", "access_ip_v6", "auto_disk_config"),
)


class Rebuild(Own):
    """``payload``: ``image_ref``; ``images``, by id, where the API describes them; ``changes``, of `CHANGEABLE`;
    ``key_name`` (None: no key any more), if it is to change; ``injected_files``, path to base64; ``admin_password``."""

    asks = True

    def question(
        self,
        uow: UnitOfWork,
        conf: cfg.ConfigOpts,
        context: RequestContext,
        instance: Instance,
        payload: dict[str, Any],
    ) -> RequestSpec | None:
        """Whether another image may run on the host."""
        limits = quotas.bounds(uow, conf, instance.project_id, context.user_id)
        create.check_limits(limits, payload["changes"].get("metadata_", {}), payload["injected_files"])
        image, _ = _images(uow, context, instance, payload)
        if image.id == instance.image_ref:
            return None
        return RequestSpec(
            instance_uuids=[instance.uuid],
            project_id=instance.project_id,
            user_id=instance.user_id,
            flavor=msgspec.convert(instance.flavor, Flavor),
            image=image,
            requested_destination=RequestedDestination(host=instance.host, node=instance.node),
            stays=True,
        )

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        image, boot_images = _images(uow, context, instance, payload)
        if "key_name" in payload:
            _set_key(uow, context, instance, payload["key_name"])
        for name, value in payload["changes"].items():
            if name not in CHANGEABLE:
                raise exception.InvalidInput(reason=f"{name} of a server cannot be changed by a rebuild")
            setattr(instance, name, value)
        instance.image_ref = image.id
        instance.image = msgspec.to_builtins(image)
        instance.boot_images = msgspec.to_builtins(boot_images)
        instance.kernel_id, instance.ramdisk_id = image.kernel_id or "", image.ramdisk_id or ""
        instance.system_metadata = create.image_metadata(image)
        instance.progress = 0
        instance.request = {
            "injected_files": payload["injected_files"],
            "admin_password": payload.get("admin_password"),
        }
        claims.renew(uow, instance)
        return {"stop": instance.vm_state == states.STOPPED}


def _images(
    uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
) -> tuple[Image, dict[str, Image]]:
    described = msgspec.convert(payload["images"], dict[str, Image])
    flavor = msgspec.convert(instance.flavor, Flavor)
    image, boot_images = create.find_images(uow, context, payload["image_ref"], described, flavor)
    if image is None:
        raise exception.ImageUnavailable()
    return image, boot_images


def _set_key(uow: UnitOfWork, context: RequestContext, instance: Instance, name: str | None) -> None:
    key = None if name is None else keypairs.find(uow, context.user_id or "", name)
    if name is not None and key is None:
        raise exception.KeypairUnavailable()
    instance.key_name = None if key is None else key.name
    instance.key_data = None if key is None else key.public_key
