"""``/cloud-images``: well-known images of distributors for imports by URL, which Glance has no list of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import webob

from nova_lite.api.http import wsgi
from nova_lite.base import exceptions
from nova_lite.image import download
from nova_lite.image.sources import catalogue
from nova_lite.image.sources.catalogue import CloudImage
from nova_lite.policies import image_service as policies


class CloudImagesApp:
    """WSGI application, behind authentication. Its policy is that of new images.

    ``is_allowed``: whether the operator has listed the host of the address, so that no mirror is needed.
    """

    def __init__(self, services: wsgi.ApiServices) -> None:
        self._policy = services.policy
        hosts = list(services.conf.image.import_hosts)
        found = [_view(image, name, hosts) for image in catalogue.IMAGES for name in image.architectures]
        self._body = json.dumps({"images": found}).encode()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            self._policy.authorize(environ[wsgi.CONTEXT], policies.CREATE)
        except exceptions.NovaLiteException as error:
            return wsgi.fault(error.code, error.message)(environ, start_response)
        response = webob.Response(body=self._body, content_type="application/json", charset="utf-8")
        return response(environ, start_response)


def _view(image: CloudImage, architecture: str, hosts: Sequence[str]) -> dict[str, Any]:
    path = image.file(architecture)
    return {
        "name": image.name,
        "architecture": architecture,
        "image": image.image_name(architecture),
        "site": image.site,
        "path": path,
        "disk_format": catalogue.FORMAT,
        "properties": image.properties(architecture),
        "is_allowed": _is_allowed(f"{image.site}/{path}", hosts),
    }


def _is_allowed(url: str, hosts: Sequence[str]) -> bool:
    try:
        download.target_of(url, hosts)
    except exceptions.ValidationError:
        return False
    return True
