"""Floating addresses of a host, and the rules that translate them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import HostForwarding, HostRouter, PortFilters
from nova_lite.virt.libvirt.net import floating_ips
from nova_lite.virt.libvirt.net.floating_ips import FloatingAddresses, Forward, Lead, Translations
from nova_lite.virt.libvirt.net.links import Links
from nova_lite.virt.libvirt.net.names import gateway_name, uplink_name
from tests.support.guests import make_network, make_vif
from tests.unit.virt.libvirt.net.kernel import Kernel

A, B = "192.0.2.1", "192.0.2.2"


class Interface:
    """An interface with addresses. ``ran``: changes."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.ran: list[str] = []

    def run(self, *command: str, text: str = "") -> bytes:
        if text:
            self.ran += text.splitlines()
            return b""
        if "show" in command:
            return "\n".join(f"1: lo inet {address} scope global lo" for address in self.addresses).encode()
        verb, address = command[2:4]
        self.ran.append(" ".join(command[2:]))
        if verb == "del":
            self.addresses.remove(address)
        elif address not in self.addresses:
            self.addresses.append(address)
        return b""

    def reboot(self) -> None:
        self.addresses.clear()
        self.ran.clear()


@pytest.fixture
def interface(monkeypatch: pytest.MonkeyPatch) -> Interface:
    made = Interface()
    monkeypatch.setattr(floating_ips.images, "run", made.run)
    return made


def test_machine_has_exactly_the_addresses_of_its_guests(tmp_path: Path, interface: Interface) -> None:
    addresses, ran = FloatingAddresses(str(tmp_path), "h", "lo"), interface.ran
    addresses.assign(set())
    assert ran == []
    addresses.assign({A})
    addresses.assign({A})
    assert ran == [f"replace {A}/32 dev lo"]
    addresses.assign({A, B})
    assert ran[1:] == [f"replace {B}/32 dev lo"]
    addresses.assign({B})
    assert ran[-1] == f"del {A}/32 dev lo"


def test_kernel_keeps_addresses_of_this_machine_for_the_given_seconds(tmp_path: Path, interface: Interface) -> None:
    addresses, ran = FloatingAddresses(str(tmp_path), "h", "lo"), interface.ran
    addresses.keep({A}, 20)
    assert ran == [], "which addresses are here is not known yet"
    addresses.assign({A, B})
    ran.clear()
    addresses.keep({A, "192.0.2.9"}, 20)
    addresses.keep({A}, 0)
    addresses.keep({A, B}, None)
    lives = [(A, "20"), (A, "1"), (A, "forever"), (B, "forever")]
    assert ran == [f"address replace {item}/32 dev lo valid_lft {life} preferred_lft {life}" for item, life in lives]


def test_addresses_are_exact_after_a_restart(tmp_path: Path, interface: Interface) -> None:
    FloatingAddresses(str(tmp_path), "h", "lo").assign({A, B})
    interface.ran.clear()
    FloatingAddresses(str(tmp_path), "h", "lo").assign({B})
    assert interface.ran == [f"del {A}/32 dev lo", f"replace {B}/32 dev lo"]


def test_machine_that_has_booted_never_has_an_address_that_it_has_lost(tmp_path: Path, interface: Interface) -> None:
    FloatingAddresses(str(tmp_path), "h", "lo").assign({A, B})
    interface.reboot()
    again = FloatingAddresses(str(tmp_path), "h", "lo")
    assert again.present({A, B}) == set()
    again.assign({B})
    assert interface.ran == [f"replace {B}/32 dev lo"]


def test_address_is_announced_when_the_interface_gets_it(
    tmp_path: Path, interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []
    monkeypatch.setattr(floating_ips, "announce", lambda name, address: announced.append(address))
    FloatingAddresses(str(tmp_path), "h", "lo").assign({A})
    FloatingAddresses(str(tmp_path), "h", "lo").assign({A})
    assert announced == [A], "a restarted daemon announces none that is there"
    interface.reboot()
    FloatingAddresses(str(tmp_path), "h", "lo").assign({A})
    assert announced == [A, A]


def test_interrupted_change_is_completed_after_a_restart(
    tmp_path: Path, interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_killed(*command: str) -> bytes:
        interface.run(*command)
        if "show" in command:
            return b""
        raise exceptions.VirtDriverError(reason="killed")

    with monkeypatch.context() as patch:
        patch.setattr(floating_ips.images, "run", is_killed)
        with pytest.raises(exceptions.VirtDriverError):
            FloatingAddresses(str(tmp_path), "h", "lo").assign({A})
    assert interface.addresses == [f"{A}/32"]
    FloatingAddresses(str(tmp_path), "h", "lo").assign(set())
    assert interface.addresses == []


LEADS = [Lead(A, "169.254.192.5", "10.1.0.5"), Lead(B, "169.254.192.6", "10.1.0.5")]


def test_host_translates_floating_addresses_to_those_of_links() -> None:
    assert floating_ips.ruleset("t", [], {}) == ""
    text = floating_ips.ruleset("t", LEADS, {})
    inward = f"dnat ip to ip daddr map {{ {A} : 169.254.192.5, {B} : 169.254.192.6 }}"
    assert text.count(inward) == 2, "for packets of others, and of the host itself"
    assert f"snat ip to ip saddr map {{ 169.254.192.5 : {A}, 169.254.192.6 : {B} }}" in text


def test_host_translates_links_of_routers_to_their_addresses() -> None:
    text = floating_ips.ruleset("t", LEADS[:1], {"169.254.192.9": B})
    assert f"snat ip to ip saddr map {{ 169.254.192.5 : {A}, 169.254.192.9 : {B} }}" in text
    assert f"ip daddr {{ {B} }} icmp type echo-request accept\n    ip daddr {{ {B} }} drop" in text
    assert f"{B} :" not in text, "no connection from outside enters the realm"
    assert "dnat" not in floating_ips.ruleset("t", [], {"169.254.192.9": B})


def test_host_has_the_addresses_of_routers_with_a_realm(kernel: Kernel, tmp_path: Path) -> None:
    numbers = Links(str(tmp_path))
    here = Translations("h", numbers)
    place(kernel, "net-1", "r1")
    known = [HostRouter(id="r1", address=A), HostRouter(id="r2", address=B)]
    ((link, address),) = here.of_routers(known).items()
    with numbers.lock():
        assert (link, address) == (f"169.254.192.{numbers.number('r1')}", A), "the address of the realm's own link"
    assert here.of_routers([HostRouter(id="r1"), HostRouter(id="r1", address="fd00::1")]) == {}


def test_realm_translates_addresses_of_links_to_those_of_guests() -> None:
    gone = "add table inet t\ndelete table inet t\n"
    assert floating_ips.realm_ruleset("t", []) == gone
    text = floating_ips.realm_ruleset("t", LEADS)
    assert text.startswith(gone)
    inward = "169.254.192.5 : 10.1.0.5, 169.254.192.6 : 10.1.0.5"
    assert f'iifname "nlup" dnat ip to ip daddr map {{ {inward} }}' in text
    assert 'oifname "nlup" snat ip to ip saddr map { 10.1.0.5 : 169.254.192.6 }' in text, "one of both addresses"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def place(kernel: Kernel, network_id: str, realm_id: str) -> None:
    """Let a network have its gateway in a realm."""
    kernel.namespaces.add(f"nl-{realm_id}")
    kernel.bridge(gateway_name(network_id), alias=realm_id)


def test_equal_addresses_of_two_realms_have_links_of_their_own(kernel: Kernel, tmp_path: Path) -> None:
    here = Translations("h", Links(str(tmp_path)))
    assert here.assign({}) == []
    place(kernel, "net-1", "r1")
    place(kernel, "net-2", "r2")
    one, two = (make_vif(network=make_network(id=f"net-{number}")) for number in (1, 2))
    away = make_vif(network=make_network(id="net-3"))
    leads = here.assign({A: one, B: two, "192.0.2.3": away})
    assert {(lead.floating, lead.fixed) for lead in leads} == {(A, one.address), (B, one.address)}
    assert len({lead.link for lead in leads}) == 2
    routes = {line for line in kernel.lines[None] if line.startswith("route replace")}
    assert {(line.split()[2], line.split()[-1]) for line in routes} == {
        (f"{lead.link}/32", uplink_name("r1" if lead.floating == A else "r2")) for lead in leads
    }
    assert f"{leads[0].link} : {one.address}" in kernel.table_of("nl-r1", "nova_lite_floating_h")
    done = len(kernel.tables)
    assert here.assign({A: one, B: two}) == leads and len(kernel.tables) == done


def test_address_follows_its_network_to_another_realm_and_is_freed_in_the_end(kernel: Kernel, tmp_path: Path) -> None:
    numbers = Links(str(tmp_path))
    here, vif = Translations("h", numbers), make_vif(network=make_network(id="net-1"))
    place(kernel, "net-1", "r1")
    (before,) = here.assign({A: vif})
    kernel.namespaces.add("nl-r2")
    (kernel.net / gateway_name("net-1") / "ifalias").write_text("r2")
    assert here.assign({A: vif}) == [before]
    assert before.link in kernel.table_of("nl-r2", "nova_lite_floating_h")
    assert before.link not in kernel.table_of("nl-r1", "nova_lite_floating_h")
    assert kernel.lines[None][-1].endswith(uplink_name("r2"))
    assert here.assign({}) == []
    assert kernel.lines[None][-1] == f"route delete {before.link}/32"
    assert before.link not in kernel.table_of("nl-r2", "nova_lite_floating_h")
    with numbers.lock():
        assert f"169.254.192.{numbers.number('another')}" == before.link


LINK = "169.254.192.5"


@pytest.mark.parametrize(
    ("external", "internal", "target"),
    [
        ((2222, 2222), (22, 22), "tcp dport 2222 dnat ip to 10.1.0.5:22"),
        ((80, 90), (80, 90), "tcp dport 80-90 dnat ip to 10.1.0.5"),
        ((80, 90), (443, 443), "tcp dport 80-90 dnat ip to 10.1.0.5:443"),
        (
            (80, 81),
            (8080, 8081),
            "tcp dport 80-81 dnat ip to tcp dport map { 80 : 10.1.0.5 . 8080, 81 : 10.1.0.5 . 8081 }",
        ),
    ],
)
def test_forwarding_translates_the_address_on_the_host_and_ports_in_the_realm(
    external: tuple[int, int], internal: tuple[int, int], target: str
) -> None:
    ways = [Forward(A, LINK, "10.1.0.5", "tcp", external, internal)]
    assert f'iifname "nlup" ip daddr {LINK} {target}\n' in floating_ips.realm_ruleset("t", ways)
    text = floating_ips.ruleset("t", ways, {})
    assert text.count(f"ip daddr {A} {target.split(' dnat')[0]} dnat ip to {LINK}\n") == 2
    assert "map" not in text and "snat" not in text, "nft refuses an empty map"
    assert f"ct direction original ip daddr {{ {A} }} meta l4proto != icmp reject" in text, "they are not the host's"
    assert "reject" not in floating_ips.ruleset("t", LEADS, {})


FORWARDING = HostForwarding(
    floating=A,
    router_id="r1",
    network_id="net-1",
    port_id="p",
    address="10.1.0.5",
    protocol="tcp",
    external=(80, 80),
    internal=(8080, 8080),
)


def test_host_gives_up_the_addresses_of_guests_that_are_gone() -> None:
    """A router's address stays with the last guest on its networks."""
    one, two = make_network(id="net-1"), make_network(id="net-2")
    guest, other = make_vif(id="p", network=one), make_vif(id="q", network=two)
    elsewhere = msgspec.structs.replace(FORWARDING, floating=B, port_id="q")
    router = HostRouter(id="r1", networks=[one, two], address="192.0.2.9")
    filters = PortFilters(floating={"q": "192.0.2.8"}, forwardings=[FORWARDING, elsewhere], routers=[router])
    assert floating_ips.held(filters) == {A, B, "192.0.2.8", "192.0.2.9"}
    kept = floating_ips.held_without(filters, [guest], [other])
    assert kept == {B, "192.0.2.8", "192.0.2.9"}
    left = floating_ips.only(filters, kept)
    assert [item.is_held for item in left.forwardings] == [False, True]
    assert (left.floating, left.routers) == (filters.floating, [router])
    nothing = floating_ips.only(filters, floating_ips.held_without(filters, [guest, other], []))
    assert (floating_ips.held(nothing), nothing.routers) == (set(), [HostRouter(id="r1", networks=[one, two])])


def test_forwardings_of_an_address_have_one_link_while_their_router_is_here(kernel: Kernel, tmp_path: Path) -> None:
    numbers = Links(str(tmp_path))
    here = Translations("h", numbers)
    other = msgspec.structs.replace(FORWARDING, protocol="udp", address="10.2.0.6")
    assert here.assign({}, [FORWARDING, other]) == []
    place(kernel, "net-1", "r1")
    ways = here.assign({}, [FORWARDING, other])
    assert [(way.floating, way.fixed) for way in ways] == [(A, "10.1.0.5"), (A, "10.2.0.6")]
    (link,) = {way.link for way in ways}
    routes = [line for line in kernel.lines[None] if line.startswith(f"route replace {link}/32 ")]
    assert [line.split()[-1] for line in routes] == [uplink_name("r1")]
    table = kernel.table_of("nl-r1", "nova_lite_floating_h")
    assert f"{link} tcp dport 80 dnat ip to 10.1.0.5:8080" in table and f"{link} udp dport 80" in table
    assert here.assign({}, [other]) == ways[1:]
    assert "10.1.0.5" not in kernel.table_of("nl-r1", "nova_lite_floating_h")
    assert here.assign({}) == []
    assert kernel.lines[None][-1] == f"route delete {link}/32"
    assert link not in kernel.table_of("nl-r1", "nova_lite_floating_h")


@pytest.mark.parametrize(
    "changes",
    [
        {"floating": "192.0.2.1%lo"},
        {"address": "10.1.0.5; drop"},
        {"address": "fd00::5"},
        {"protocol": "icmp"},
        {"protocol": "tcp dport 1 accept #"},
        {"external": (0, 0)},
        {"external": (80, 65536), "internal": (80, 65536)},
        {"external": (81, 80), "internal": (81, 80)},
        {"external": (80, 82), "internal": (80, 81)},
    ],
)
def test_invalid_forwarding_is_refused(changes: dict[str, object]) -> None:
    assert floating_ips.valid_forwarding(FORWARDING) == FORWARDING
    with pytest.raises(ValueError):
        floating_ips.valid_forwarding(msgspec.structs.replace(FORWARDING, **changes))


def test_announcement_is_a_complete_frame() -> None:
    frame = floating_ips.gratuitous_arp(bytes.fromhex("0a0000000001"), A)
    mac, packed = "0a0000000001", "c0000201"
    assert frame.hex() == f"ffffffffffff{mac}08060001080006040001{mac}{packed}000000000000{packed}"
