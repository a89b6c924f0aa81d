"""The volume API: the part of Cinder's v3 API that clients use.

Metadata of volumes are rows of the conductor's database. Compute hosts do the work on volumes' files.
"""

from __future__ import annotations

from typing import Any

import webob

from nova_lite.api.http import deploy, wsgi
from nova_lite.api.http.rest import ServiceApplication, ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import versions
from nova_lite.api.volume.absent import AbsentResources
from nova_lite.api.volume.attachments import Attachments
from nova_lite.api.volume.backends import Hosts, Pools, Services
from nova_lite.api.volume.backups import Backups
from nova_lite.api.volume.info import Info, Quotas
from nova_lite.api.volume.metadata import SnapshotMetadata, VolumeMetadata
from nova_lite.api.volume.qos import Qos
from nova_lite.api.volume.snapshots import Snapshots
from nova_lite.api.volume.transfers import Transfers
from nova_lite.api.volume.types import DefaultTypes, ExtraSpecs, TypeEncryption, Types
from nova_lite.api.volume.volume_actions import VolumeActions
from nova_lite.api.volume.volumes import Volumes
from nova_lite.base import exceptions


def app_factory(global_conf: dict[str, str], **local_conf: str) -> VolumeApp:
    del global_conf, local_conf
    services = deploy.services()
    backend = services.conf.volume.backend
    if backend == "cinder":
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: volume needs [volume] backend = local or rbd, which is {backend}."
        )
    return VolumeApp(services)


class VolumeApp(ServiceApplication):
    """WSGI application, mounted at ``/v3``. The rest of the path may start with the caller's project id."""

    api = "volume"
    strict_slashes = True
    resources = (
        Volumes, VolumeActions, VolumeMetadata, Attachments, Snapshots, SnapshotMetadata, Backups, Transfers,
        Types, ExtraSpecs, TypeEncryption, DefaultTypes, Qos, Quotas, Services, Hosts, Pools, Info, AbsentResources,
    )  # fmt: skip

    def __init__(self, services: wsgi.ApiServices) -> None:
        super().__init__(services)
        self._collections = {route.path.split("/")[1] for route in self.routes}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Remove a leading id of the caller's project from the path. Add the version header to every response.

        The id of another project stays in the path, and is refused.
        """
        path = environ.get("PATH_INFO", "")
        first, _, rest_of_path = path.lstrip("/").partition("/")
        context = environ.get(wsgi.CONTEXT)
        if first not in self._collections and context is not None and first == context.project_id:
            environ["SCRIPT_NAME"] = f"{environ.get('SCRIPT_NAME', '')}/{first}"
            environ["PATH_INFO"] = "/" + rest_of_path
        return super().__call__(environ, versions.with_header(environ, start_response))

    def _handle(self, req: ServiceRequest) -> Response | webob.Response:
        """Refuse an unsupported version, also where the version changes nothing, and a URL of another project."""
        versions.minor_of(req)
        first, *rest = req.environ.get("PATH_INFO", "").strip("/").split("/")
        has_project = bool(rest) and first not in self._collections and rest[0] in self._collections
        if has_project and wsgi.CONTEXT in req.environ and first != req.context.project_id:
            raise wsgi.wrong_project(first, req.context)
        return super()._handle(req)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return wsgi.fault(code, message)
