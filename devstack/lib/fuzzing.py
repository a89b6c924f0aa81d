"""Extensions of schemathesis for fuzz.sh: tokens, names of existing resources, and a check against leaks.

Every other request for a single resource names an existing one, every eighth another project's. Every other server
is created from a real image and flavor. Names of new resources contain this user's mark.

Environment: NOVA_LITE_URL, NOVA_LITE_TOKEN, NOVA_LITE_MARK, NOVA_LITE_FUZZ_SEED; NOVA_LITE_OTHER_TOKEN and
NOVA_LITE_OTHER_MARK of the user whose resources no other user may see, if there is one.
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
TOKEN = os.environ["NOVA_LITE_TOKEN"]
MARK = os.environ["NOVA_LITE_MARK"]
OTHER_TOKEN = os.environ.get("NOVA_LITE_OTHER_TOKEN")
OTHER_MARK = os.environ.get("NOVA_LITE_OTHER_MARK")
NEWEST = {"OpenStack-API-Version": "compute 2.104"}
WITH_IMAGES = {"OpenStack-API-Version": "compute 2.35"}
REFRESH_AFTER = 100
#: Collection: the key of its list, and how an item is named.
COLLECTIONS = {
    "servers": ("servers", "id"),
    "flavors": ("flavors", "id"),
    "os-keypairs": ("keypairs", "name"),
    "os-server-groups": ("server_groups", "id"),
    "os-services": ("services", "id"),
    "os-hypervisors": ("hypervisors", "id"),
}
#: Its private half was thrown away.
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEMlH9XVFRKTeB0fdTZ1WL+UbMmvlIGRVpq+eOUe3vZS"
#: Collections whose items belong to one project.
OWNED = ("servers", "os-keypairs", "os-server-groups")

PART = 0.1

random_source = random.Random(os.environ["NOVA_LITE_FUZZ_SEED"])


class Existing:
    """Names of visible resources by collection, refreshed now and then.

    Each refresh creates a resource in every owned collection that is empty.
    """

    def __init__(self, token: str, mark: str) -> None:
        self._headers = {"X-Auth-Token": token}
        self._mark = mark
        self._names: dict[str, list[str]] = {}
        self._uses = 0

    def one(self, collection: str) -> str | None:
        if self._uses % REFRESH_AFTER == 0:
            self.refresh()
        self._uses += 1
        names = self._names.get(collection)
        return random_source.choice(names) if names else None

    def owned(self) -> set[str]:
        """Return ids and marked names that belong to the token's project, as of the last refresh."""
        ids = {name for collection in ("servers", "os-server-groups") for name in self._names.get(collection, [])}
        return ids | {name for name in self._names.get("os-keypairs", []) if self._mark in name}

    def refresh(self) -> None:
        self._names = {name: self._list(name) for name in COLLECTIONS} | {"images": self._images()}
        for collection in OWNED:
            if not self._names[collection] and (body := self._body(collection)):
                self._request("POST", collection, NEWEST, body)
                self._names[collection] = self._list(collection)

    def _body(self, collection: str) -> dict[str, Any] | None:
        """Return a create body, or None when an admin has deleted what it needs."""
        match collection:
            case "servers":
                if not (self._names["images"] and self._names["flavors"]):
                    return None
                what = {"imageRef": self._names["images"][0], "flavorRef": self._names["flavors"][0]}
                marks = {"name": self._mark, "description": self._mark, "metadata": {"mark": self._mark}}
                return {"server": {**what, **marks, "tags": [self._mark], "networks": "auto"}}
            case "os-server-groups":
                return {"server_group": {"name": self._mark, "policy": "affinity"}}
            case _:
                return {"keypair": {"name": self._mark, "type": "ssh", "public_key": PUBLIC_KEY}}

    def _list(self, collection: str) -> list[str]:
        key, name = COLLECTIONS[collection]
        items = self._request("GET", collection, NEWEST).get(key, [])
        return [item.get("keypair", item)[name] for item in items]

    def _images(self) -> list[str]:
        return [item["id"] for item in self._request("GET", "images", WITH_IMAGES).get("images", [])]

    def _request(self, method: str, collection: str, headers: dict[str, str], body: Any = None) -> Any:
        """Send a request. Returns nothing when the token may not, or its quota is used up."""
        data = json.dumps(body).encode() if body is not None else None
        kind = {"Content-Type": "application/json"}
        everything = self._headers | headers | kind
        request = urllib.request.Request(f"{URL}/{collection}", data, everything, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 403:
                return {}
            raise


existing = Existing(TOKEN, MARK)
others = Existing(OTHER_TOKEN, OTHER_MARK) if OTHER_TOKEN and OTHER_MARK else None


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Select a different part of the boundary requests in every round."""
    del context
    return case.meta.phase.name != "coverage" or random_source.random() < PART


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    del context, kwargs
    case.headers.update({"X-Auth-Token": TOKEN})
    if random_source.random() < 0.5:
        return
    _name_what_exists(case)
    if case.method == "POST" and case.path == "/servers":
        _make_possible(case)
    _mark(case)


@schemathesis.check
def no_leak(context: Any, response: Any, case: Any) -> None:
    """Check that no response contains resources of the other project. A request that names one finds nothing."""
    del context
    if others is None:
        return
    request = response.request
    sent = f"{request.url} {request.body!r}"
    told = f"{response.headers} {response.text}"
    for secret in {*others.owned(), OTHER_MARK}:
        assert secret not in told or secret in sent, f"the answer tells of {secret} of another project"
    named = _first_variable(case)
    if named is not None and case.path_parameters.get(named) in others.owned():
        assert response.status_code >= 400, "the request found a thing of another project"


def _first_variable(case: Any) -> str | None:
    """Return the variable of a path that follows a collection."""
    collection, _, rest = case.path.lstrip("/").partition("/")
    if collection in COLLECTIONS and rest.startswith("{") and case.path_parameters:
        return str(rest[1 : rest.index("}")])
    return None


def _name_what_exists(case: Any) -> None:
    variable = _first_variable(case)
    if variable is None:
        return
    collection = case.path.lstrip("/").partition("/")[0]
    foreign = others is not None and collection in OWNED and random_source.random() < 0.25
    if name := (others if foreign and others else existing).one(collection):
        case.path_parameters[variable] = name


def _mark(case: Any) -> None:
    for value in case.body.values() if isinstance(case.body, dict) else ():
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            value["name"] = f"{MARK}-{random_source.randrange(1000)}"


def _make_possible(case: Any) -> None:
    server = case.body.get("server") if isinstance(case.body, dict) else None
    if isinstance(server, dict):
        server |= {"imageRef": existing.one("images"), "flavorRef": existing.one("flavors"), "networks": "auto"}
        for name in ("block_device_mapping", "block_device_mapping_v2", "min_count", "max_count"):
            server.pop(name, None)
