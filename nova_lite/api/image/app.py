"""The image API: the part of Glance's v2 API that clients need.

Image metadata are rows of the conductor's database. Image data are files on this machine.
"""

from __future__ import annotations

from typing import Any

import webob
import webob.exc

from nova_lite.api.http import deploy
from nova_lite.api.http.rest import ServiceApplication, ServiceRequest
from nova_lite.api.image import imports
from nova_lite.api.image.data import ImageData
from nova_lite.api.image.images import Images, Members
from nova_lite.api.image.imports import Imports
from nova_lite.api.image.info import Info, Schemas, Tasks
from nova_lite.api.image.metadefs import Metadefs
from nova_lite.base import directory_users, exceptions
from nova_lite.image import store


def app_factory(global_conf: dict[str, str], **local_conf: str) -> ImageApp:
    del global_conf, local_conf
    services = deploy.services()
    if services.conf.image.backend != "local":
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: image needs [image] backend = local, which is {services.conf.image.backend}."
        )
    try:
        directory_users.register(services.conf.image.store_path, services.conf.host)
        store.sweep(services.conf.image.store_path)
        imports.sweep(services.conf.image.store_path)
    except OSError as error:
        raise exceptions.ConfigurationError(
            reason=f"[image] store_path = {services.conf.image.store_path}: {error.strerror}."
        ) from error
    return ImageApp(services)


def _json_fault(body: str, status: str, title: str, environ: dict[str, Any]) -> dict[str, str]:
    """Return Glance's form of an error in JSON, without the markup that its messages have there."""
    del environ
    return {"message": body.removesuffix(_MARKUP), "code": status, "title": title}


#: End of the body of an error for JSON, in the WSGI library.
_MARKUP = "<br /><br />\n\n\n"


class ImageApp(ServiceApplication):
    """WSGI application, mounted at ``/v2``."""

    api = "image"
    strict_slashes = True
    resources = (Images, ImageData, Imports, Members, Info, Tasks, Schemas, Metadefs)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        """Return the error in Glance's form: HTML, or JSON for a client that prefers that."""
        wanted = req.accept.acceptable_offers(["text/html", "application/json"])
        template = webob.exc.WSGIHTTPException.body_template_obj.template
        error = webob.exc.status_map[code](explanation=message, body_template=template, json_formatter=_json_fault)
        accept = wanted[0][0] if wanted else "text/html"
        return webob.Request.blank("/", headers={"Accept": accept}).get_response(error)
