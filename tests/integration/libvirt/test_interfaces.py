"""Attaching and detaching interfaces of a real guest, running and off."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import Image
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.net import names, nft
from tests.integration.libvirt.conftest import (
    PATIENCE,
    Images,
    MakeDriver,
    assert_nothing_left,
    boot,
    guest_lines,
    guest_spec,
)
from tests.integration.libvirt.guests import NewVif, console_line, user_data
from tests.support.guests import make_flavor, make_instance, make_spec
from tests.support.waiting import wait_for

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
    driver.networks.plug(spec.instance, [first, second])
    for _ in range(2):
        driver.interfaces.attach(uuid, second)
    both = {first.mac_address, second.mac_address}
    assert macs(connection, uuid) == (both, both)
    line = f"has: {' '.join(sorted(both))}"
    wait_for("the guest has both", lambda: line in driver.consoles.output(uuid, None), PATIENCE)
    for _ in range(2):
        driver.interfaces.detach(uuid, second)
    assert macs(connection, uuid) == ({first.mac_address}, {first.mac_address})
    alone = f"has: {first.mac_address} \r"
    wait_for("the guest has one", lambda: driver.consoles.output(uuid, None).count(alone) > 1, PATIENCE)
    driver.power.off(uuid, 0)
    driver.networks.plug(spec.instance, [first, second])
    driver.interfaces.attach(uuid, second)
    driver.power.on(uuid)
    assert macs(connection, uuid) == (both, both)
    driver.guests.destroy(uuid)
    driver.networks.unplug(uuid)
    spec.vifs = [first, second]
    assert_nothing_left(connection, driver, spec)


def bindings(connection: Any, tap: str) -> list[str]:
    """Return libvirt's filters of a tap device."""
    return [found.filterName() for found in connection.listAllNWFilterBindings() if found.portDev() == tap]


def guarded(driver: LibvirtDriver, tap: str) -> bool:
    table = names.spoofing_table(driver.host)
    listed = subprocess.run(["nft", "list", "table", "bridge", table], capture_output=True, text=True, check=False)
    return f'"{tap}" : goto sent_' in listed.stdout and f'"{tap}" : goto received_' in listed.stdout


def test_guest_whose_rules_cannot_be_loaded_is_refused_alone(
    driver: LibvirtDriver, blank: Image, new_vif: NewVif, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No interface is open, and the guests beside it are as before."""
    good, bad = new_vif(), new_vif()
    specs = [
        make_spec(instance=make_instance(flavor=make_flavor(memory_mb=64)), vifs=[vif], image=blank, generation=1)
        for vif in (good, bad)
    ]
    boot(driver, specs[0])
    real = nft.run
    monkeypatch.setattr(
        nft, "run", lambda text, namespace=None: "nft: refused" if bad.id[:8] in text else real(text, namespace)
    )
    with pytest.raises(exceptions.VirtDriverError, match="nft: refused"):
        driver.networks.plug(specs[1].instance, [bad])
    assert guarded(driver, f"tap{good.id[:11]}")
    assert not guarded(driver, f"tap{bad.id[:11]}")
    driver.networks.unplug(specs[1].instance.uuid)
    monkeypatch.undo()
    boot(driver, specs[1])
    assert guarded(driver, f"tap{bad.id[:11]}")


def test_guest_whose_record_is_unreadable_is_closed_until_it_is_plugged(
    make_driver: MakeDriver, blank: Image, new_vif: NewVif
) -> None:
    driver, vif, other = make_driver("one"), new_vif(), new_vif()
    spec, beside = (
        make_spec(instance=make_instance(flavor=make_flavor(memory_mb=64)), vifs=[item], image=blank, generation=1)
        for item in (vif, other)
    )
    boot(driver, spec)
    boot(driver, beside)
    record = Path(driver.conf.state_path, "instances", "_interfaces", f"{spec.instance.uuid}.json")
    record.write_text("{")
    driver = make_driver("one")
    tap, table = f"tap{vif.id[:11]}", names.spoofing_table(driver.host)
    listed = subprocess.run(["nft", "list", "table", "bridge", table], capture_output=True, text=True, check=True)
    assert listed.stdout.count(f'"{tap}" : drop') == 2, "sent and received"
    assert guarded(driver, f"tap{other.id[:11]}")
    driver.networks.plug(spec.instance, [vif])
    assert guarded(driver, tap)
