"""PCI devices and vGPUs of hosts in the Placement API, over a real conductor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.api.http import deploy
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import claims, instances
from nova_lite.objects import PCIDevice, PCIKind, PCIRequest, Selection
from nova_lite.objects.pci import TYPE_PF, TYPE_VF
from tests.support import make
from tests.support.api_client import ADMIN, make_conf
from tests.support.in_process_api import make_services

CARD = "0000:c1:00.0"
T4 = PCIDevice(address="0000:41:00.0", vendor_id="10de", product_id="1eb8")
NIC = PCIDevice(address=CARD, vendor_id="8086", product_id="159a", dev_type=TYPE_PF)
FUNCTIONS = [
    PCIDevice(address=f"0000:c1:01.{number}", vendor_id="8086", product_id="1889", dev_type=TYPE_VF, parent=CARD)
    for number in range(2)
]
PLACES = [
    PCIDevice(address=f"0000:84:00.0#{n}", vendor_id="", product_id="", parent="0000:84:00.0", resource_class="VGPU")
    for n in range(4)
]
GPU, FUNCTION, VGPU = "CUSTOM_PCI_10DE_1EB8", "CUSTOM_PCI_8086_1889", "VGPU"


class Api:
    """Host ``h1`` has a T4, a card with virtual functions and a GPU; ``h2`` has a T4. ``server`` uses ``h1``."""

    def __init__(self, path: Path) -> None:
        conf = make_conf(path, f"enabled_apis = placement\n[database]\nconnection = sqlite:///{path}/db.sqlite\n")
        self.manager, api_services = make_services(conf, path)
        self.app = deploy.load_app("placement", api_services)
        db = self.manager.db
        for host, devices in (("h1", [T4, NIC, *FUNCTIONS, *PLACES]), ("h2", [T4])):
            inventory = make.inventory(host, pci=devices)
            db.write(hosts.record, conf, make.report(host, inventories=[inventory]))
        self.server: str = db.write(make.instance, project_id="demo", user_id="alice")
        db.write(_claim, self.server)
        shown = self.get("/resource_providers")["resource_providers"]
        self.uuids = {item["name"]: item["uuid"] for item in shown}
        self.roots = {item["name"]: item["root_provider_uuid"] for item in shown}
        self.parents = {item["name"]: item["parent_provider_uuid"] for item in shown}

    def get(self, path: str, version: str = "1.39", status: int = 200) -> Any:
        request = webob.Request.blank(path, base_url="http://cloud:8778")
        request.headers["X-Auth-Token"] = ADMIN
        request.headers["OpenStack-API-Version"] = f"placement {version}"
        response = request.get_response(self.app)
        assert response.status_code == status, response.text
        return response.json

    def names(self, query: str) -> list[str]:
        return [item["name"] for item in self.get(f"/resource_providers?{query}")["resource_providers"]]

    def of(self, name: str, part: str) -> Any:
        return self.get(f"/resource_providers/{self.uuids[name]}/{part}")[part]

    def candidates(self, query: str) -> list[dict[str, dict[str, int]]]:
        """Return the resources of each candidate by the name of the provider."""
        names = {uuid: name for name, uuid in self.uuids.items()}
        found = self.get(f"/allocation_candidates?{query}")["allocation_requests"]
        return [{names[uuid]: item["resources"] for uuid, item in request["allocations"].items()} for request in found]


def _claim(uow: UnitOfWork, uuid: str) -> None:
    row = instances.lock(uow, uuid)
    assert row is not None
    wanted = [
        PCIRequest(alias="vf", count=1, kinds=[PCIKind(vendor_id="8086", product_id="1889", dev_type=TYPE_VF)]),
        PCIRequest(
            alias="resources:VGPU", count=3, kinds=[PCIKind(vendor_id="", product_id="", resource_class="VGPU")]
        ),
    ]
    assert claims.claim(uow, row, Selection(host="h1", node="h1"), None, wanted)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return an API that no test changes."""
    made = Api(tmp_path_factory.mktemp("devices"))
    yield made
    made.manager.db.close()


def test_devices_are_providers_below_their_host_with_novas_names(api: Api) -> None:
    children = {"h1_0000:41:00.0": "h1", f"h1_{CARD}": "h1", "h1_pci_0000_84_00_0": "h1", "h2_0000:41:00.0": "h2"}
    assert api.parents == {"h1": None, "h2": None} | {name: api.uuids[host] for name, host in children.items()}
    assert api.roots == {name: api.uuids[children.get(name, name)] for name in api.uuids}
    assert len(set(api.uuids.values())) == 6
    assert api.of(f"h1_{CARD}", "traits") == ["COMPUTE_MANAGED_PCI_DEVICE"]
    assert api.of("h1_pci_0000_84_00_0", "traits") == api.of(f"h1_{CARD}", "aggregates") == []


def test_inventories_and_usages_are_those_of_the_devices(api: Api) -> None:
    assert api.of("h1_0000:41:00.0", "usages") == {GPU: 0}
    assert api.of("h1_pci_0000_84_00_0", "usages") == {VGPU: 3}
    assert api.of("h1_pci_0000_84_00_0", "inventories")[VGPU]["total"] == 4
    assert api.of(f"h1_{CARD}", "usages") == {FUNCTION: 1, "CUSTOM_PCI_8086_159A": 0}
    amounts = api.of(f"h1_{CARD}", "inventories")
    assert {name: (item["total"], item["reserved"]) for name, item in amounts.items()} == {
        FUNCTION: (2, 0),
        "CUSTOM_PCI_8086_159A": (1, 1),  # one of its functions is claimed
    }
    assert "VGPU" not in api.of("h1", "inventories")


def test_allocations_of_a_server_are_those_of_the_host_and_of_devices(api: Api) -> None:
    by_provider = api.get(f"/allocations/{api.server}")["allocations"]
    assert {uuid: item["resources"] for uuid, item in by_provider.items()} == {
        api.uuids["h1"]: {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1},
        api.uuids[f"h1_{CARD}"]: {FUNCTION: 1},
        api.uuids["h1_pci_0000_84_00_0"]: {VGPU: 3},
    }
    assert {name: list(item["resources"]) for name, item in api.of(f"h1_{CARD}", "allocations").items()} == {
        api.server: [FUNCTION]
    }
    assert "VCPU" in api.of("h1", "allocations")[api.server]["resources"]
    assert api.of("h1_0000:41:00.0", "allocations") == {}
    used = api.get("/usages?project_id=demo")["usages"]["INSTANCE"]
    assert (used[VGPU], used[FUNCTION], used["VCPU"], used["consumer_count"]) == (3, 1, 1, 1)


def test_devices_are_found_by_name_uuid_tree_and_resources(api: Api) -> None:
    gpu = "h1_pci_0000_84_00_0"
    assert api.names(f"name={gpu}") == api.names(f"uuid={api.uuids[gpu]}") == [gpu]
    tree = ["h1", "h1_0000:41:00.0", f"h1_{CARD}", gpu]
    assert api.names(f"in_tree={api.uuids[gpu]}") == api.names(f"in_tree={api.uuids['h1']}") == tree
    assert api.names("resources=VGPU:1") == [gpu]
    assert api.names("resources=VGPU:2") == []
    assert sorted(api.names(f"resources={GPU}:1")) == ["h1_0000:41:00.0", "h2_0000:41:00.0"]
    assert api.names("resources=CUSTOM_PCI_8086_159A:1") == []
    classes = [item["name"] for item in api.get("/resource_classes")["resource_classes"]]
    assert classes[-3:] == [GPU, "CUSTOM_PCI_8086_159A", FUNCTION]
    assert api.get(f"/resource_classes/{GPU}")["name"] == GPU
    unknown = api.get("/resource_providers?resources=CUSTOM_PCI_1_2:1", status=400)
    assert "No such resource class CUSTOM_PCI_1_2" in unknown["errors"][0]["detail"]


def test_candidates_take_devices_of_their_host(api: Api) -> None:
    gpu, t4 = "h1_pci_0000_84_00_0", "h1_0000:41:00.0"
    assert api.candidates("resources=VCPU:1,VGPU:1") == [{"h1": {"VCPU": 1}, gpu: {VGPU: 1}}]
    assert api.candidates("resources=VCPU:1,VGPU:2") == []
    both = f"resources=VCPU:1&resources1={GPU}:1&resources2=VGPU:1&group_policy=isolate"
    assert api.candidates(both) == [{"h1": {"VCPU": 1}, t4: {GPU: 1}, gpu: {VGPU: 1}}]
    assert len(api.candidates(f"resources=VCPU:1&resources1={GPU}:1")) == 2
    assert api.candidates(f"resources=VCPU:1&resources1={GPU}:1&required1=COMPUTE_NODE") == []
    managed = f"resources1={GPU}:1&required1=COMPUTE_MANAGED_PCI_DEVICE&in_tree1={api.uuids[t4]}"
    assert api.candidates(managed) == [{t4: {GPU: 1}}]
    twice = f"resources1={FUNCTION}:1&resources2={FUNCTION}:1&group_policy="
    assert api.candidates(f"{twice}none") == api.candidates(f"{twice}isolate") == []
    shown = api.get("/allocation_candidates?resources=VCPU:1&resources1=VGPU:1")
    (request,) = shown["allocation_requests"]
    assert request["mappings"] == {"": [api.uuids["h1"]], "1": [api.uuids[gpu]]}
    assert len(shown["provider_summaries"]) == 4


def test_older_versions_have_no_candidates_with_devices(api: Api) -> None:
    older = api.get("/allocation_candidates?resources=VCPU:1,VGPU:1", "1.28")
    assert older == {"allocation_requests": [], "provider_summaries": {}}
    assert len(api.get("/allocation_candidates?resources=VCPU:1", "1.28")["provider_summaries"]) == 2
