"""Real guests with changing security groups, and with a forged address."""

from __future__ import annotations

import re
import shutil

import msgspec
import pytest

from nova_lite.objects import PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import PATIENCE, Images, boot, guest_lines, guest_spec, whole_lines
from tests.integration.libvirt.guests import HTTP, TRIES, NewVif, console_line, group, user_data
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")


#: The guest prints the number of pings that it has received.
SERVES = """
(while :; do nc -l -p 80 -e /bin/true; done) &
while :; do echo "pings: $(grep '^Icmp:' /proc/net/snmp | tail -n 1 | cut -d' ' -f10)"; sleep 1; done
"""
#: The neighbour is static, because ARP requests of a forged address would be dropped, too.
FORGES = """
arp -s {server} {mac}
ip addr flush dev eth0; ip addr add {forged}/24 dev eth0
ping -c 3 -W 1 {server} >/dev/null
ip addr flush dev eth0; ip addr add {own}/24 dev eth0
ping -c 2 -W 1 {server} >/dev/null
echo "both sent"
"""
_TRY = re.compile(r"^try (\d+): (yes|no)\r?$", re.MULTILINE)


def test_port_is_opened_and_closed_while_another_guest_tries(
    driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    """Packets from a forged address are dropped, whatever the groups allow."""
    mine, other, forged = (msgspec.structs.replace(new_vif(), port_security_enabled=True) for _ in range(3))
    server = guest_spec(images, [mine], hostname="server", user_data=user_data(SERVES))
    values = {"server": mine.address, "mac": mine.mac_address, "own": other.address, "forged": forged.address}
    client = guest_spec(images, [other], hostname="client", user_data=user_data((FORGES + TRIES).format(**values)))
    shut, web, ping = (
        group("shut"),
        group("web", HTTP),
        group("ping", SecurityGroupRule(id="r", security_group_id="ping", protocol="icmp")),
    )
    ids = [spec.instance.uuid for spec in (server, client)]

    def let_in(*groups: SecurityGroup) -> None:
        known = {group.id: group for group in (shut, *groups)}
        driver.filters.apply(PortFilters(groups=known, instances={ids[0]: list(known), ids[1]: ["shut"]}))

    boot(driver, server)
    assert guest_lines(driver, ids[0])[0][2] == mine.address
    let_in(ping)
    boot(driver, client)
    assert guest_lines(driver, ids[1])[0][2] == other.address
    console_line(driver, ids[1], "both sent")

    def pings() -> str:
        return re.findall(r"^pings: (\d+)\r?$", whole_lines(driver, ids[0]), re.MULTILINE)[-1]

    def tries() -> list[tuple[str, str]]:
        return _TRY.findall(whole_lines(driver, ids[1]))

    def wait_for_answer(answer: str) -> None:
        """Wait until all new attempts have this result."""
        before = len(tries()) + 1
        found = wait_for(
            f"three tries that end with {answer}",
            lambda: tries()[before:][:3] if len(tries()) >= before + 3 else [],
            PATIENCE,
        )
        assert [result for _, result in found] == [answer] * 3

    wait_for_answer("no")
    assert pings() == "2", "pings from the forged address did not arrive"
    let_in(ping, web)
    wait_for_answer("yes")
    let_in(ping)
    wait_for_answer("no")
