"""The way of a packet of a port: ``/ports/{id}/trace``."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from nova_lite.db.core.models import Port
from nova_lite.db.network import networks
from tests.support import make
from tests.support.api_client import ADMIN, STRANGER
from tests.support.spanning import guest, host
from tests.unit.api.network.conftest import Api


@pytest.fixture
def ports(api: Api) -> tuple[str, str]:
    """Make two servers of the project demo on one network and host, and return their ports."""
    db = api.manager.db
    node = host(db, "host-one", "10.9.9.1")
    record = next(item for item in db.read(networks.list_, make.ADMIN) if item.id == api.shared.id)
    values = {"project_id": "demo", "security_groups": ["default"], "host": "host-one"}
    uuids = [guest(db, record, number, node, mac_address=f"fa:16:3e:00:00:{number}", **values) for number in (11, 12)]
    query = sa.select(Port.id).where(Port.instance_uuid.in_(uuids)).order_by(Port.address)
    first, second = db.read(lambda uow: uow.session.scalars(query).all())
    return first, second


def test_way_to_an_own_port_names_the_rules_that_let_it_pass(api: Api, ports: tuple[str, str]) -> None:
    here, there = ports
    found = api.get(f"/ports/{here}/trace?destination={there}&protocol=tcp&port=80")["trace"]
    assert (found["packet"], found["arrives"], found["arrived_at"]) == (
        "10.0.0.11 to 10.0.0.12, tcp port 80",
        True,
        there,
    )
    assert [part["kind"] for part in found["parts"]] == ["port", "anti-spoofing", "rule", "rule", "port"]
    assert set(found["parts"][0]) == {"kind", "id", "group_id", "passes", "text"}
    assert "host-one" not in repr(found)
    outside = api.get(f"/ports/{here}/trace?destination=203.0.113.9", ADMIN)["trace"]
    assert (outside["arrived_at"], outside["parts"][-1]["text"]) == ("outside", "It leaves the cloud.")


def test_way_of_another_projects_port_is_not_found(api: Api, ports: tuple[str, str]) -> None:
    for path in (f"/ports/{ports[0]}/trace?destination=10.0.0.12", "/ports/nosuch/trace?destination=10.0.0.12"):
        api.refused("GET", path, None, 404, "PortNotFound", "", STRANGER)
    own = api.make("/ports", "port", STRANGER, network_id=api.shared.id)["id"]
    path = f"/ports/{own}/trace?destination={ports[0]}"
    api.refused("GET", path, None, 404, "PortNotFound", ports[0], STRANGER)


def test_port_without_a_server_has_no_way(api: Api) -> None:
    port_id = api.port()["id"]
    response = api("GET", f"/ports/{port_id}/trace?destination=10.0.0.12")
    assert response.status_code == 409
    assert f"Port {port_id} is on no host" in response.text


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "Required attribute 'destination'"),
        ("destination=10.0.0.12&protocol=sctp&port=1", "It must be one of icmp, tcp, udp."),
        ("destination=10.0.0.12&protocol=tcp", "tcp and udp need one, and icmp has none."),
        ("destination=10.0.0.12&port=80", "tcp and udp need one, and icmp has none."),
        ("destination=10.0.0.12&protocol=udp&port=0", "from 1 to 65535"),
        ("destination=10.0.0.12&protocol=udp&port=65536", "from 1 to 65535"),
        ("destination=10.0.0.12&protocol=udp&port=x", "from 1 to 65535"),
        ("destination=10.0.0.12&ip_version=5", "It must be one of 4, 6."),
        ("destination=224.0.0.1", "is not the address of one machine"),
        ("destination=fd00::1", "has no IPv6 address"),
    ],
)
def test_way_of_a_packet_that_cannot_be_is_refused(api: Api, ports: tuple[str, str], query: str, text: str) -> None:
    response = api("GET", f"/ports/{ports[0]}/trace?{query}")
    assert response.status_code == 400, response.text
    assert text in response.json["NeutronError"]["message"]
