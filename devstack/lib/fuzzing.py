"""What fuzz.sh adds to schemathesis: the token, and names of things that exist, lest all answers be 404.

Every other request for one thing is for one that is there; every other server is created of a real image and flavor.
"""

from __future__ import annotations

import json
import os
import random
import urllib.error
import urllib.request
from typing import Any

import schemathesis

URL = os.environ["NOVA_LITE_URL"] + "/v2.1"
HEADERS = {"X-Auth-Token": os.environ["NOVA_LITE_TOKEN"]}
NEWEST = {"OpenStack-API-Version": "compute 2.96"}
WITH_IMAGES = {"OpenStack-API-Version": "compute 2.35"}
REFRESH_AFTER = 100
#: Collection: the key of its list, and how an item is named.
COLLECTIONS = {
    "servers": ("servers", "id"),
    "flavors": ("flavors", "id"),
    "os-keypairs": ("keypairs", "name"),
    "os-services": ("services", "id"),
    "os-hypervisors": ("hypervisors", "id"),
}

random_source = random.Random(os.environ.get("NOVA_LITE_FUZZ_SEED"))


class Existing:
    """Names by collection, asked for anew from time to time, as requests make and delete things."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._uses = 0

    def one(self, collection: str) -> str | None:
        if self._uses % REFRESH_AFTER == 0:
            self._names = {name: self._ask(name) for name in COLLECTIONS} | {"images": self._images()}
        self._uses += 1
        names = self._names.get(collection)
        return random_source.choice(names) if names else None

    def _ask(self, collection: str) -> list[str]:
        key, name = COLLECTIONS[collection]
        return [item.get("keypair", item)[name] for item in _get(collection, NEWEST).get(key, [])]

    def _images(self) -> list[str]:
        return [item["id"] for item in _get("images", WITH_IMAGES).get("images", [])]


def _get(collection: str, headers: dict[str, str]) -> Any:
    """Nothing when the token may not list them."""
    request = urllib.request.Request(f"{URL}/{collection}", headers=HEADERS | headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 403:
            return {}
        raise


existing = Existing()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    del context, kwargs
    case.headers.update(HEADERS)
    if random_source.random() < 0.5:
        return
    _name_what_exists(case)
    if case.method == "POST" and case.path == "/servers":
        _make_possible(case)


def _name_what_exists(case: Any) -> None:
    """The first variable of a path names one of the collection in front of it."""
    collection, _, rest = case.path.lstrip("/").partition("/")
    if rest.startswith("{") and case.path_parameters and (name := existing.one(collection)):
        case.path_parameters[rest[1 : rest.index("}")]] = name


def _make_possible(case: Any) -> None:
    server = case.body.get("server") if isinstance(case.body, dict) else None
    if isinstance(server, dict):
        server |= {"imageRef": existing.one("images"), "flavorRef": existing.one("flavors"), "networks": "auto"}
        for name in ("block_device_mapping", "block_device_mapping_v2", "min_count", "max_count"):
            server.pop(name, None)
