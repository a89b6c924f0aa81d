"""Errors of flavors and of guest hardware."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict, Invalid, NotFound


class FlavorUnavailable(Invalid):
    """A flavor named in a request body does not exist (a flavor named in a URL is `FlavorNotFound`)."""

    msg_fmt = "Flavor %(flavor_id)s could not be found."


class FlavorDiskTooSmall(Invalid):
    msg_fmt = (
        "Flavor's disk is too small for requested image. Flavor disk is %(flavor_size)i GiB, "
        "image needs %(image_min_disk)i GiB."
    )


class FlavorMemoryTooSmall(Invalid):
    msg_fmt = (
        "Flavor's memory is too small for requested image. Flavor has %(flavor_mb)i MiB, image needs %(image_mb)i MiB."
    )


class HardwareRefused(Invalid):
    """Guest hardware of a flavor or an image that is not supported, or inconsistent."""

    msg_fmt = "%(reason)s"


class FlavorNotFound(NotFound):
    msg_fmt = "Flavor %(flavor_id)s could not be found."


class FlavorExtraSpecNotFound(NotFound):
    msg_fmt = "Flavor %(flavor_id)s has no extra specs with key %(key)s."


class FlavorAccessNotKept(NotFound):
    msg_fmt = "Access list not available for public flavors."


class FlavorAccessNotFound(NotFound):
    msg_fmt = "Flavor access not found for %(flavor_id)s / %(project_id)s combination."


class FlavorExists(Conflict):
    msg_fmt = "Flavor with %(attr)s %(value)s already exists."


class FlavorIsPublic(Conflict):
    msg_fmt = "Can not add access to a public flavor."


class FlavorAccessExists(Conflict):
    msg_fmt = "Flavor access already exists for flavor %(flavor_id)s and project %(project_id)s combination."
