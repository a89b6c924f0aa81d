"""Vendor data: what the operator tells every guest, from a file and from services that are asked about each guest."""

from __future__ import annotations

import json
import logging
from typing import Any

import requests
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.objects import Instance

LOG = logging.getLogger(__name__)

#: Under which key of ``vendor_data2.json`` the file's content is.
STATIC = "static"

MAX_ANSWER_BYTES = 1024 * 1024


class VendorData:
    """A source that fails is left out, with a line in the log: no guest is kept from booting by it."""

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
        """``vendor_data2.json``: the file's, and each service's under its name."""
        return {STATIC: self.static()} | {name: self._ask(name, url, instance) for name, url in self._targets.items()}

    def _ask(self, name: str, url: str, instance: Instance) -> dict[str, Any]:
        question = {
            "project-id": instance.project_id,
            "instance-id": instance.uuid,
            "image-id": instance.image_ref,
            "user-data": instance.user_data,
            "hostname": instance.hostname,
            "metadata": instance.metadata,
            "boot-roles": "",
        }
        try:
            with requests.post(
                url, json=question, timeout=self._timeouts, allow_redirects=False, stream=True
            ) as answer:
                if answer.status_code != 200:
                    raise ValueError(f"it answers {answer.status_code}")
                body = answer.raw.read(MAX_ANSWER_BYTES + 1, decode_content=True)
            if len(body) > MAX_ANSWER_BYTES:
                raise ValueError(f"it answers more than {MAX_ANSWER_BYTES} bytes")
            return _object(body)
        except (requests.RequestException, ValueError, OSError) as error:
            LOG.error("Vendor data %s of instance %s are left out: %s", name, instance.uuid, error)
            return {}


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def _target(text: str) -> tuple[str, str]:
    name, at, url = text.partition("@")
    if not at or not name or name == STATIC or not url.startswith(("http://", "https://")):
        raise exceptions.ConfigurationError(
            reason=f"[api] vendordata_dynamic_targets: {text!r} has to be NAME@URL, and NAME not {STATIC}."
        )
    return name, url
