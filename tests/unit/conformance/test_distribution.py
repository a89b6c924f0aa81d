"""The second distribution: with it the APIs serve its routes, without it they do not know them, and the rest works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import nova_lite_conformance.policies
from nova_lite import policies
from nova_lite.api.http import router
from nova_lite.api.identity.app import IdentityApp
from tests.support.code_versions import TOP, hide_conformance

#: Sends the requests of its input to a cloud in which one resource of each other kind is made, and prints the results.
WITHOUT = """
import json, sys, tempfile
from pathlib import Path
from nova_lite.base import concurrency
concurrency.setup()
from nova_lite import policies
from tests.support.every_api import EveryApi

class Bare(EveryApi):
    def _furnish_conformance(self, domain):
        return {}

def refusal(service, method, path, action):
    response = cloud.send(service, method, path, {action: None} if action else None, version="2.1")
    return response.status_code, response.text

with tempfile.TemporaryDirectory() as directory:
    cloud = Bare(Path(directory))
    server = cloud.send("compute", "GET", f"/servers/{cloud.things['server'][0]}").json["server"]["status"]
    refusals = [refusal(*request) for request in json.load(sys.stdin)]
    cloud.close()
loaded = [name for name in sys.modules if name.startswith("nova_lite_conformance")]
rules = [rule.name for rule in policies.list_rules()]
print(json.dumps({"server": server, "refusals": refusals, "loaded": loaded, "rules": rules}))
"""

OURS = "nova_lite_conformance."
UNKNOWN = "The resource could not be found."
Request = tuple[str, str, str, str | None]


def identity_requests() -> list[Request]:
    own = [
        made for made in IdentityApp.routes if made.resource is not None and made.resource.__module__.startswith(OURS)
    ]
    return [("identity", made.method, filled(made.path), None) for made in own]


def compute_requests() -> list[Request]:
    own = [kind for kind in router.extension_classes() if kind.__module__.startswith(OURS)]
    return [("compute", route.method, filled(route.path), route.action) for kind in own for route in kind.routes]


def filled(path: str) -> str:
    return path.replace("{", "").replace("}", "")


def own_rules() -> set[str]:
    names = [name for name in vars(nova_lite_conformance.policies).values() if isinstance(name, str)]
    return {name for name in names if name.startswith(("identity:", "os_compute_api:"))}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of `WITHOUT` in a process from which the second distribution is hidden."""
    hidden = tmp_path_factory.mktemp("hidden")
    hide_conformance(hidden)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(hidden), str(TOP)])}
    requests = json.dumps([*identity_requests(), *compute_requests()])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT],
        input=requests, cwd=TOP, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def test_distribution_has_the_routes_of_its_resources() -> None:
    paths = {path for _, _, path, _ in (*identity_requests(), *compute_requests())}
    assert {"/v3/policies", "/v3/domains/config/default", "/v3/OS-EP-FILTER/endpoint_groups"} <= paths
    assert {"/os-tenant-networks", "/os-cells", "/os-baremetal-nodes"} <= paths
    assert own_rules() <= {rule.name for rule in policies.list_rules()}
    assert len(own_rules()) == 28


def test_routes_without_the_distribution_are_unknown(without: dict[str, Any]) -> None:
    requests = [*identity_requests(), *compute_requests()]
    for request, (code, text) in zip(requests, without["refusals"], strict=True):
        action = request[-1]
        assert code == (400 if action else 404), request
        assert (f"There is no such action: {action}" if action else UNKNOWN) in text, request


def test_rest_works_without_the_distribution(without: dict[str, Any]) -> None:
    assert without["server"] == "ACTIVE"
    assert without["loaded"] == []
    assert set(without["rules"]) == {rule.name for rule in policies.list_rules()} - own_rules()
