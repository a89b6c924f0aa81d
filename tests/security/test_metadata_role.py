"""An attacker has taken a compute host that serves metadata, with the key of its metadata service. That key reads and
changes nothing but the guests of that host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nova_lite import rpc
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.security.attacker import VICTIM, Attacker, SecuredCloud, failure_of, versions_of
from tests.security.conftest import SECRET, create_servers

OWN = "compute-1"
SINCE = rpc.contract_of(ConductorRPC).methods["metadata_instances"].since
ALLOWED = {"metadata_instances", "metadata_password_set"}


@pytest.fixture(scope="module")
def servers(cloud: SecuredCloud) -> dict[str, str]:
    """Provide servers of this module: other modules delete theirs."""
    return create_servers(cloud)


@pytest.fixture(scope="module")
def metadata(cloud: SecuredCloud) -> Iterator[Attacker]:
    made = Attacker(cloud, OWN, role=rpc.METADATA)
    yield made
    made.close()


def test_metadata_service_reads_the_guests_of_its_own_host(
    cloud: SecuredCloud, metadata: Attacker, servers: dict[str, str]
) -> None:
    """The refusals below would prove nothing without it."""
    arguments = {"host": OWN, "address": None, "instance_uuid": servers[OWN]}
    (found,) = metadata.told("conductor", None, "metadata_instances", SINCE, **arguments)
    assert (found["uuid"], found["user_data"]) == (servers[OWN], SECRET)


def test_metadata_service_reads_no_guest_of_another_host(
    cloud: SecuredCloud, metadata: Attacker, servers: dict[str, str]
) -> None:
    addresses = cloud.request("GET", f"/servers/{servers[VICTIM]}").json()["server"]["addresses"]
    places = [{"address": port["addr"], "instance_uuid": None} for ports in addresses.values() for port in ports]
    assert places
    networks = cloud.request("GET", f"/servers/{servers[VICTIM]}/os-interface").json()["interfaceAttachments"]
    places += [{**place, "network_id": item["net_id"]} for place in places for item in networks]
    with cloud.unchanged():
        for place in [*places, {"address": None, "instance_uuid": servers[VICTIM]}]:
            found = metadata.told("conductor", None, "metadata_instances", SINCE, host=OWN, **place)
            assert servers[VICTIM] not in [item["uuid"] for item in found]
        password = {"host": OWN, "instance_uuid": servers[VICTIM], "password": "forged"}
        answer = metadata.ask("conductor", None, "metadata_password_set", SINCE, **password)
    assert failure_of(answer) == "InstanceNotFound"


@pytest.mark.parametrize("method", sorted(ALLOWED))
def test_metadata_service_does_not_speak_for_another_host(
    cloud: SecuredCloud, metadata: Attacker, servers: dict[str, str], method: str
) -> None:
    with cloud.refuses("conductor", f"Message {method} of metadata on compute-1 is refused: it may speak of itself"):
        answer = metadata.ask("conductor", None, method, SINCE, host=VICTIM, instance_uuid=servers[VICTIM])
    assert failure_of(answer) == "MessageRefused"


def test_metadata_service_may_call_two_methods() -> None:
    rules = rpc.contract_of(ConductorRPC).access or {}
    assert {name for name, rule in rules.items() if rpc.METADATA in rule.roles} == ALLOWED


@pytest.mark.parametrize("method", sorted(set(versions_of(ConductorRPC)) - ALLOWED))
def test_other_methods_of_the_conductor_are_refused(
    cloud: SecuredCloud, metadata: Attacker, servers: dict[str, str], method: str
) -> None:
    version = versions_of(ConductorRPC)[method]
    with cloud.refuses("conductor", f"Message {method} of metadata on compute-1 is refused: role metadata may not"):
        answer = metadata.ask("conductor", None, method, version, instance_uuid=servers[VICTIM])
    assert failure_of(answer) == "MessageRefused"
    assert SECRET not in json.dumps(answer)


@pytest.mark.parametrize("host", [OWN, VICTIM])
def test_no_message_to_a_host(cloud: SecuredCloud, metadata: Attacker, servers: dict[str, str], host: str) -> None:
    for method in ("get_console_output", "fence_instance", "refresh_security_groups"):
        version = versions_of(ComputeRPC)[method]
        with cloud.refuses(host, f"Message {method} of metadata on compute-1 is refused: role metadata may not"):
            metadata.order("compute", host, method, version, instance_uuid=servers[VICTIM])
