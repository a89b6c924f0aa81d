"""Errors of images."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict, Forbidden, Invalid, NotFound, ServiceUnavailable


class ImageUnavailable(Invalid):
    msg_fmt = "Can not find requested image"


class ImageNotActive(Invalid):
    msg_fmt = "Image %(image_id)s is not active."


class ImageUnacceptable(Invalid):
    """The image itself is at fault: no host can boot it."""

    msg_fmt = "Image %(image_id)s is unacceptable: %(reason)s"


class ImageMemberLimitExceeded(Forbidden):
    code = 413
    msg_fmt = "An image is shared with at most %(limit)s projects."


class ImageQuotaExceeded(Forbidden):
    """An upload that exceeds the project's quota. Has the status that Glance returns."""

    code = 413
    msg_fmt = "The limit of the project's images is reached: %(allowed)s %(unit)s, of which %(used)s are used."


class ImageNotFound(NotFound):
    msg_fmt = "Image %(image_id)s could not be found."


class ImageExists(Conflict):
    msg_fmt = "Image %(image_id)s already exists."


class TooManyUploads(Conflict):
    msg_fmt = "The project has %(limit)d uploads of images under way: wait until one of them ends."


class ImageStatusConflict(Conflict):
    msg_fmt = "Image %(image_id)s is %(status)s, where it has to be %(expected)s."


class ImageServiceUnavailable(ServiceUnavailable):
    msg_fmt = "The image service did not answer. Please try again."
