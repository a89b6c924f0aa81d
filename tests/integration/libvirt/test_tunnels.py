"""Guests of two libvirt hosts on one network: each gets its address from its own host, and VXLAN connects them."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.objects import VIF, Network, PortFilters
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import (
    GUEST_LINE,
    PATIENCE,
    Images,
    boot,
    guest_lines,
    guest_spec,
    whole_lines,
)
from tests.integration.libvirt.guests import HTTP, TRIES, group, user_data
from tests.integration.libvirt.remote import Remote
from tests.support.guests import make_network, make_vif
from tests.support.host_networks import remove_network
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")

SERVES = 'echo "mtu $(cat /sys/class/net/eth0/mtu)"\nwhile :; do nc -l -p 80 -e /bin/true; done'
TRY = re.compile(r"^try (\d+): (yes|no)\r?$", re.MULTILINE)


@pytest.fixture
def wide(connection: Any) -> Iterator[Network]:
    token = uuid.uuid4()
    prefix, bridge = f"10.{200 + token.bytes[0] % 50}.{token.bytes[1]}", f"nlt{token.hex[:8]}"
    gateway, start, end = (f"{prefix}.{number}" for number in (1, 10, 250))
    values: dict[str, Any] = {"gateway": gateway, "start": start, "end": end, "bridge": bridge, "mtu": 1450}
    vni = int.from_bytes(token.bytes[:3], "big") or 1
    yield make_network(id=str(token), cidr=f"{prefix}.0/24", vni=vni, **values)
    remove_network(connection, f"nova-lite-{token}")


@pytest.fixture
def here(directory: Path, second_host: None) -> Iterator[LibvirtDriver]:
    name = f"here-{uuid.uuid4().hex[:8]}"
    made = hosts.make_driver(directory / name, name, hosts.HERE, vxlan__local_ip=hosts.HERE)
    yield made
    for instance_uuid in {info.uuid for info in made.guests.all()} | made.guests.leftovers():
        made.guests.destroy(instance_uuid)
        made.networks.unplug(instance_uuid)


@pytest.fixture
def there(directory: Path, second_host: None) -> Iterator[Remote]:
    name = f"there-{uuid.uuid4().hex[:8]}"
    made = Remote(directory / name, name, hosts.THERE, hosts.NUMBER)
    yield made
    made.close()


def port(network: Network, number: int) -> VIF:
    address = f"{network.start.rpartition('.')[0]}.{10 + number}"  # type: ignore[union-attr]
    mac_address = f"fa:16:3e:{network.id[:2]}:77:{number:02x}"
    return make_vif(network=network, address=address, mac_address=mac_address, port_security_enabled=True)


def remote_boot(there: Remote, spec: SpawnSpec) -> None:
    there.ask("boot", instance=spec.instance, vifs=spec.vifs, image=spec.image, images=spec.images)


def test_port_is_opened_and_closed_to_a_guest_of_another_host(
    here: LibvirtDriver, there: Remote, images: Images, wide: Network
) -> None:
    mine, other = port(wide, 1), port(wide, 2)
    server = guest_spec(images, [other], hostname="server", user_data=user_data(SERVES))
    tries = user_data(TRIES.format(server=other.address))
    client = guest_spec(images, [mine], hostname="client", user_data=tries)
    ids = [client.instance.uuid, server.instance.uuid]
    device = f"nlvx{wide.vni}"

    def let_in(*open_to_all: Any) -> None:
        """Set the filters and peers on both hosts."""
        known = {member.id: member for member in (group("shut"), *open_to_all)}
        filters = PortFilters(groups=known, instances={ids[0]: ["shut"], ids[1]: list(known)})
        here.filters.apply(msgspec.structs.replace(filters, peers={wide.id: [hosts.THERE]}))
        there.ask("filters", filters=msgspec.structs.replace(filters, peers={wide.id: [hosts.HERE]}))

    def answers() -> list[tuple[str, str]]:
        return TRY.findall(whole_lines(here, ids[0]))

    def wait_for_answer(answer: str) -> None:
        """Wait until all new attempts have this result."""
        before = len(answers()) + 1
        found = wait_for(
            f"three tries that end with {answer}",
            lambda: answers()[before:][:3] if len(answers()) >= before + 3 else [],
            PATIENCE,
        )
        assert [result for _, result in found] == [answer] * 3

    remote_boot(there, server)
    boot(here, client)
    let_in()
    assert guest_lines(here, ids[0])[0][2] == mine.address
    lines = wait_for("the server's line", lambda: GUEST_LINE.findall(there.ask("console", uuid=ids[1])), PATIENCE)
    assert lines == [(ids[1], "server", other.address)]
    assert "mtu 1450" in wait_for(
        "its MTU", lambda: re.findall("mtu [0-9]+", there.ask("console", uuid=ids[1])), PATIENCE
    )
    assert os.path.exists(f"/sys/class/net/{device}") and device in there.ask("links")
    wait_for_answer("no")
    let_in(group("web", HTTP))
    wait_for_answer("yes")
    let_in()
    wait_for_answer("no")
    here.guests.destroy(ids[0])
    here.networks.unplug(ids[0])
    there.ask("destroy", uuid=ids[1])
    assert not os.path.exists(f"/sys/class/net/{device}") and device not in there.ask("links")
