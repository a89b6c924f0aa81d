"""Attaching and detaching interfaces of a real guest, running and off."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import Images, assert_nothing_left, boot, guest_lines, guest_spec, wait_for
from tests.integration.libvirt.guests import NewVif, console_line, user_data

#: The guest prints its interfaces each time they change.
WATCHES = """
before=
while :; do
    now=$(cd /sys/class/net; cat eth*/address 2>/dev/null | sort | tr '\\n' ' ')
    [ "$now" = "$before" ] || echo "has: $now"
    before=$now
    usleep 200000
done
"""


def macs(connection: Any, instance_uuid: str) -> tuple[set[str], set[str]]:
    """Return the MAC addresses of the running guest's interfaces, and of its next start's."""
    domain = connection.lookupByUUIDString(instance_uuid)
    found = []
    for flag in (0, 2):
        elements = ElementTree.fromstring(domain.XMLDesc(flag)).iterfind("devices/interface/mac")
        found.append({str(element.get("address")) for element in elements})
    return found[0], found[1]


def test_interface_is_attached_and_detached_while_the_guest_runs(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    first, second = new_vif(), new_vif()
    spec = guest_spec(images, [first], user_data=user_data(WATCHES))
    uuid = spec.instance.uuid
    boot(driver, spec)
    guest_lines(driver, uuid)
    assert console_line(driver, uuid, "has:").split()[1:] == [first.mac_address]
    driver.plug_vifs(spec.instance, [first, second])
    for _ in range(2):
        driver.attach_interface(uuid, second)
    both = {first.mac_address, second.mac_address}
    assert macs(connection, uuid) == (both, both)
    line = f"has: {' '.join(sorted(both))}"
    wait_for("the guest has both", lambda: line in driver.get_console_output(uuid, None))
    for _ in range(2):
        driver.detach_interface(uuid, second)
    assert macs(connection, uuid) == ({first.mac_address}, {first.mac_address})
    alone = f"has: {first.mac_address} \r"
    wait_for("the guest has one", lambda: driver.get_console_output(uuid, None).count(alone) > 1)
    driver.power_off(uuid, 0)
    driver.plug_vifs(spec.instance, [first, second])
    driver.attach_interface(uuid, second)
    driver.power_on(uuid)
    assert macs(connection, uuid) == (both, both)
    driver.destroy(uuid)
    driver.unplug_vifs(uuid)
    spec.vifs = [first, second]
    assert_nothing_left(connection, driver, spec)
