"""Real guests that query 169.254.169.254, and their access to the rest of their host."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.net import dhcp, links, names, namespaces, realms
from tests.integration.libvirt.conftest import Images, MakeDriver, boot, guest_lines, guest_spec
from tests.integration.libvirt.guests import NewVif, console_line, user_data
from tests.integration.libvirt.metadata import Service
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")

KEY = "ssh-ed25519 AAAA alice"


@pytest.fixture
def driver(make_driver: MakeDriver, service: Service) -> LibvirtDriver:
    made = make_driver("one", **service.options)
    service.serve(made)
    return made


def script(*lines: str) -> str:
    """Return user data that can ``get`` a path of the service, and print ``reaches ADDRESS PORT``."""
    helpers = """
get() {
    printf 'GET %s HTTP/1.0\\r\\n%b\\r\\n' "$1" "$2" | timeout 20 nc -w 10 169.254.169.254 80 | sed '1,/^\\r*$/d'
}
reaches() {
    if nc -w 4 "$1" "$2" -e /bin/true 2>/dev/null; then echo "reaches $1 $2: yes"; else echo "reaches $1 $2: no"; fi
}
"""
    return user_data("\n".join([helpers, *lines, "echo; echo script ended"]))


def test_guest_reads_its_metadata_without_a_config_drive(
    driver: LibvirtDriver, service: Service, images: Images, new_vif: NewVif
) -> None:
    vif = new_vif()
    asks = script(
        "echo keys: $(get /latest/meta-data/public-keys/0/openssh-key)",
        "echo address: $(get /latest/meta-data/local-ipv4)",
        "echo names: $(get /latest/meta-data/)",
    )
    spec = guest_spec(images, [vif], hostname="from-metadata", key_name="mine", key_data=KEY, user_data=asks)
    boot(driver, service.know(spec))
    uuid_ = spec.instance.uuid
    assert guest_lines(driver, uuid_) == [(uuid_, "from-metadata", vif.address)]
    assert console_line(driver, uuid_, "nova-lite-guest-source").strip() == "nova-lite-guest-source: metadata-service"
    assert console_line(driver, uuid_, "keys:").strip() == f"keys: {KEY}"
    assert console_line(driver, uuid_, "address:").strip() == f"address: {vif.address}"
    assert " public-keys/ " in console_line(driver, uuid_, "names:")
    assert driver.diagnostics.read(uuid_).config_drive is False


def test_guest_cannot_impersonate_another(
    driver: LibvirtDriver, service: Service, images: Images, new_vif: NewVif
) -> None:
    """The guest names another one in headers, and takes the address of the other guest, which is off."""
    vif, other = new_vif(), new_vif()
    victim = service.know(guest_spec(images, [other], hostname="victim"))
    asks = script(
        f"echo forged: $(get /latest/meta-data/hostname 'X-Instance-ID: {victim.instance.uuid}\\r\\n"
        f"X-Forwarded-For: {other.address}\\r\\n')",
        f"ip addr flush dev eth0; ip addr add {other.address}/24 dev eth0",
        f"ip route add default via {vif.network.gateway}",
        "echo spoofed: $(get /latest/meta-data/hostname)",
    )
    spec = guest_spec(images, [vif], hostname="forger", user_data=asks)
    driver.networks.plug(victim.instance, victim.vifs)
    boot(driver, service.know(spec))
    assert console_line(driver, spec.instance.uuid, "forged:").strip() == "forged: forger"
    console_line(driver, spec.instance.uuid, "script ended")
    assert console_line(driver, spec.instance.uuid, "spoofed:").strip() == "spoofed:"


@pytest.fixture
def surroundings() -> Iterator[str]:
    """Provide a listening address in the machine's own link-local network: a namespace behind a link."""
    name = f"nlt{uuid.uuid4().hex[:8]}"
    number = uuid.uuid4().bytes[0]
    here, there = f"169.254.90.{number & 252 | 1}", f"169.254.90.{number & 252 | 2}"
    for command in (
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name eth0 netns {name}",
        f"ip address add {here}/30 dev {name}",
        f"ip link set {name} up",
        f"ip -n {name} address add {there}/30 dev eth0",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} route add default via {here}",
    ):
        subprocess.run(command.split(), check=True)
    command = f"ip netns exec {name} {sys.executable} -m http.server 80 --bind {there}"
    with subprocess.Popen(command.split(), stderr=subprocess.DEVNULL) as process:
        try:
            wait_for("listener", lambda: can_connect(there, 80), timeout=20)
            yield there
        finally:
            process.kill()
            subprocess.run(["ip", "link", "delete", name], check=True)
            subprocess.run(["ip", "netns", "delete", name], check=True)


def can_connect(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def test_guest_reaches_nothing_else_of_its_host_and_its_surroundings(
    driver: LibvirtDriver, service: Service, images: Images, new_vif: NewVif, surroundings: str
) -> None:
    """A listener on all addresses represents broker, database and API; another one the machine's own cloud."""
    vif = new_vif()
    gateway = str(vif.network.gateway)
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        places = [("169.254.169.254", 80), (gateway, 53), (gateway, port), (str(links.HOST), 22)]
        places += [(str(links.HOST), port), ("169.254.169.254", port), (surroundings, 80)]
        asks = script(*(f"reaches {address} {number}" for address, number in places))
        spec = service.know(guest_spec(images, [vif], hostname="curious", user_data=asks))
        boot(driver, spec)
        console_line(driver, spec.instance.uuid, "script ended")
    found = [console_line(driver, spec.instance.uuid, f"reaches {place} {number}").strip() for place, number in places]
    assert found == [
        f"reaches {address} {number}: {'yes' if (address, number) in places[:2] else 'no'}"
        for address, number in places
    ]


def test_host_ports_opened_by_the_operator_are_reachable(
    make_driver: MakeDriver, images: Images, new_vif: NewVif
) -> None:
    vif = new_vif()
    with socket.create_server(("0.0.0.0", 0)) as opened, socket.create_server(("0.0.0.0", 0)) as shut:
        ports = [listener.getsockname()[1] for listener in (opened, shut)]
        driver = make_driver("one", network__host_ports=ports[:1])
        asks = script(*(f"reaches {vif.network.gateway} {port}" for port in ports))
        spec = guest_spec(images, [vif], user_data=asks)
        boot(driver, spec)
        console_line(driver, spec.instance.uuid, "script ended")
    assert console_line(driver, spec.instance.uuid, "nova-lite-guest-source").strip().endswith(": config-drive")
    lines = [
        console_line(driver, spec.instance.uuid, f"reaches {vif.network.gateway} {port}").strip() for port in ports
    ]
    assert [line.rpartition(" ")[2] for line in lines] == ["yes", "no"]


def test_realm_is_restored_by_the_daemon(
    driver: LibvirtDriver, service: Service, images: Images, new_vif: NewVif
) -> None:
    """The state is that after a reboot: bridge and realm are missing."""
    vif = new_vif()
    spec = service.know(guest_spec(images, [vif], hostname="again"))
    driver.networks.plug(spec.instance, spec.vifs)
    name = names.realm_name(vif.network.id)
    table = ["nft", "list", "table", "inet", names.network_table(vif.network.id)]
    subprocess.run([*namespaces.inside(name), *table], capture_output=True, check=True)
    dhcp.stop(names.network_name(vif.network))
    # The service's socket keeps the namespace, and with it the gateway, until it is closed.
    for link in (names.bridge_name(vif.network), names.gateway_name(vif.network.id)):
        subprocess.run(["ip", "link", "delete", link], check=True)
    subprocess.run(["ip", "netns", "delete", name], check=True)
    wait_for("the end of the realm", lambda: realms.realm_of(vif.network.id) is None, timeout=20)
    driver.init_host()
    subprocess.run([*namespaces.inside(name), *table], capture_output=True, check=True)
    assert realms.realm_of(vif.network.id) == vif.network.id


def test_guest_without_metadata_service_gets_a_config_drive(
    driver: LibvirtDriver, service: Service, images: Images, new_vif: NewVif
) -> None:
    alone = guest_spec(images, [], hostname="alone")
    personal = guest_spec(images, [new_vif()], hostname="personal")
    personal.injected_files["/etc/motd"] = base64.b64encode(b"hello").decode()
    for spec in (alone, service.know(personal)):
        boot(driver, spec)
        source_line = console_line(driver, spec.instance.uuid, "nova-lite-guest-source").strip()
        assert source_line == "nova-lite-guest-source: config-drive"
        driver.guests.destroy(spec.instance.uuid)
