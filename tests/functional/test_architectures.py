"""Servers of another architecture: hosts that emulate it are chosen, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import kinds, tidy_up
from tests.functional.server_requests import MEMBER, ask, fault, migrate, place, settled

EMULATES = "compute-2"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Run a cloud of two hosts, one of which emulates aarch64."""

    def emulate(made: Cloud) -> None:
        with (made.path / f"{EMULATES}.conf").open("a") as file:
            file.write("\n[libvirt]\nemulated_architectures = aarch64\n")

    with cloud.running(tmp_path_factory.mktemp("architectures"), emulate, computes=2) as made:
        yield made


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)
    describe(running)


def describe(cloud: Cloud, **properties: str) -> None:
    """Replace the properties of the image."""
    ask(cloud, "PUT", f"/images/{cloud.image_id}/metadata", {"metadata": properties})


def test_servers_of_another_architecture_are_where_it_is_emulated_and_stay_there(tidy: Cloud) -> None:
    describe(tidy, hw_emulation_architecture="aarch64", hw_architecture="x86_64")
    servers = tidy.create(count=3)
    tidy.wait_active(servers)
    assert {place(tidy, server) for server in servers} == {("ACTIVE", EMULATES)}
    assert migrate(tidy, servers[0], host="compute-1").status_code == 202
    assert place(tidy, servers[0]) == ("ACTIVE", EMULATES)
    assert kinds(tidy, servers[0]) == ["live-migration"]
    ask(tidy, "POST", f"/servers/{servers[1]}/action", {"migrate": None}, status=202)
    assert settled(tidy, servers[1])["OS-EXT-SRV-ATTR:host"] == EMULATES


def test_architecture_of_the_host_alone_chooses_no_host_that_emulates_it(tidy: Cloud) -> None:
    for properties in ({}, {"hw_emulation_architecture": "aarch64"}):
        describe(tidy, hw_architecture="aarch64", **properties)
        (server,) = tidy.create()
        assert "ImagePropertiesFilter (image needs architecture aarch64)" in fault(tidy, server)
    describe(tidy, hw_emulation_architecture="aarch64")
    tidy.stop(EMULATES)
    tidy.force_down(EMULATES)
    (server,) = tidy.create()
    assert "1 failed TraitsFilter (traits COMPUTE_ARCH_AARCH64)" in fault(tidy, server)


def test_hardware_and_rescue_of_the_hosts_architecture_are_refused(tidy: Cloud) -> None:
    (plain,) = tidy.create()
    tidy.wait_active([plain])
    describe(tidy, hw_emulation_architecture="aarch64")
    rescue = {"rescue": {"rescue_image_ref": tidy.image_id}}
    answer = ask(tidy, "POST", f"/servers/{plain}/action", rescue, status=400, token=MEMBER)
    assert answer["badRequest"]["message"] == (
        "The rescue image has another hw_emulation_architecture than the server's image."
    )
    describe(tidy, hw_emulation_architecture="aarch64", hw_machine_type="q35")
    server = {"name": "vm", "imageRef": tidy.image_id, "flavorRef": "1"}
    answer = ask(tidy, "POST", "/servers", {"server": server}, status=400, token=MEMBER)
    assert answer["badRequest"]["message"] == (
        "A guest with hw_emulation_architecture=aarch64 cannot have hw_machine_type=q35, only virt or one of its "
        "versions."
    )
