"""Vendor data: the operator's data for every guest, from a file and from HTTP services."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import requests
from oslo_config import cfg

from nova_lite.base import exceptions, response_body
from nova_lite.objects import Instance

LOG = logging.getLogger(__name__)

#: Key of the file's content in ``vendor_data2.json``.
STATIC = "static"

MAX_RESPONSE_BYTES = 1024 * 1024


class VendorData:
    """Sources of vendor data. A failing source is logged and left out, so that it does not stop a guest's boot."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._path = conf.api.vendordata_jsonfile_path
        self._targets = dict(_target(text) for text in conf.api.vendordata_dynamic_targets)
        self._timeouts = conf.api.vendordata_dynamic_connect_timeout, conf.api.vendordata_dynamic_read_timeout

    def static(self) -> dict[str, Any]:
        if not self._path:
            return {}
        try:
            with open(self._path, "rb") as file:
                return _object(file.read())
        except (OSError, ValueError) as error:
            LOG.error("[api] vendordata_jsonfile_path = %s is left out: %s", self._path, error)
            return {}

    def all(self, instance: Instance) -> dict[str, Any]:
        """Return ``vendor_data2.json``: the data of the file, and of each service under its name."""
        of_services = {name: self._request(name, url, instance) for name, url in self._targets.items()}
        return {STATIC: self.static()} | of_services

    def _request(self, name: str, url: str, instance: Instance) -> dict[str, Any]:
        body = {
            "project-id": instance.project_id,
            "instance-id": instance.uuid,
            "image-id": instance.image_ref,
            "user-data": instance.user_data,
            "hostname": instance.hostname,
            "metadata": instance.metadata,
            "boot-roles": "",
        }
        started = time.monotonic()
        try:
            with requests.post(url, json=body, timeout=self._timeouts, allow_redirects=False, stream=True) as response:
                if response.status_code != 200:
                    raise ValueError(f"it returned {response.status_code}")
                return _object(response_body.read(response, MAX_RESPONSE_BYTES, started + sum(self._timeouts)))
        except (requests.RequestException, ValueError, OSError) as error:
            LOG.error("Vendor data %s of instance %s are left out: %s", name, instance.uuid, error)
            return {}


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _target(text: str) -> tuple[str, str]:
    name, at, url = text.partition("@")
    if not at or not name or name == STATIC or not url.startswith(("http://", "https://")):
        raise exceptions.ConfigurationError(
            reason=f"[api] vendordata_dynamic_targets: {text!r} must be NAME@URL, and NAME not {STATIC}."
        )
    return name, url
