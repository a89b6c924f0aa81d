"""Processes of dnsmasq: their configuration, how they run, and leases of former guests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import Network, Subnet6, ipv6
from nova_lite.virt.libvirt.net import dhcp, namespaces
from tests.support.guests import make_network
from tests.support.waiting import wait_for

NETWORK = make_network()
NAME = f"nova-lite-{NETWORK.id}"
MAC = "fa:16:3e:00:76:01"
OTHER = "fa:16:3e:00:76:02"
ADDRESS = "10.76.0.10"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dhcp, "DIRECTORY", str(tmp_path))
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands that were run."""
    ran: list[str] = []
    monkeypatch.setattr(namespaces, "run", lambda *command: ran.append(" ".join(command)))
    return ran


@pytest.mark.parametrize(("before", "after"), [("128", 8192), ("65536", 65536)])
def test_limit_of_watching_processes_is_raised_if_it_is_low(
    before: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(f"{before}\n")
    monkeypatch.setattr(dhcp, "_INSTANCES", str(limit))
    dhcp.make_room()
    assert int(limit.read_text()) == after


def test_limit_of_watching_processes_that_cannot_be_raised_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "limit").mkdir()
    monkeypatch.setattr(dhcp, "_INSTANCES", str(tmp_path / "limit"))
    monkeypatch.setattr(dhcp, "_read", lambda path: "128")
    dhcp.make_room()
    assert "cannot be raised to 8192, so networks may lack DHCP: Is a directory" in caplog.text


# --- configuration


def configuration(network: Network) -> list[str]:
    return dhcp.configuration(network, NAME, "/reservations", "/options", []).splitlines()


def test_process_of_a_network_assigns_reserved_addresses_only(directory: Path) -> None:
    lines = configuration(make_network(mtu=1450))
    assert lines[0] == f"pid-file={directory}/{NAME}.pid"
    assert lines[1].startswith("user=")
    assert lines[2:] == [
        "no-hosts",
        "strict-order",
        "interface=nltest0",
        "except-interface=lo",
        "bind-dynamic",
        f"dhcp-leasefile={directory}/{NAME}.leases",
        "dhcp-range=10.76.0.0,static,255.255.255.0",
        "dhcp-hostsdir=/reservations",
        f"dhcp-optsfile={directory}/{NAME}.options",
        "dhcp-optsdir=/options",
        f"servers-file={directory}/{NAME}.servers",
        f"addn-hosts={directory}/{NAME}.names",
        "no-resolv",
        "dhcp-option=option:mtu,1450",
        "dhcp-ignore=tag:!known",
        "dhcp-authoritative",
        "dhcp-no-override",
        "dhcp-lease-max=256",
    ]


def test_tags_of_ports_are_in_the_configuration_that_is_read_once(directory: Path) -> None:
    line = "dhcp-mac=set:x,fa:16:3e:00:76:01"
    assert line in dhcp.configuration(make_network(), NAME, "/reservations", "/options", [line]).splitlines()


def test_network_without_a_gateway_differs_in_its_settings_only() -> None:
    """Users add and remove gateways while the process runs. So they are in a file that it reads again."""
    assert configuration(make_network(gateway=None)) == configuration(make_network())


def test_large_network_has_a_limited_list_of_leases() -> None:
    assert configuration(make_network(cidr="10.0.0.0/8"))[-1] == "dhcp-lease-max=65536"


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        (ipv6.SLAAC, ["enable-ra", "dhcp-range=fd00:76::,ra-only"]),
        (ipv6.STATELESS, ["enable-ra", "dhcp-range=fd00:76::,ra-stateless,64"]),
        (ipv6.STATEFUL, ["enable-ra", "dhcp-range=fd00:76::,static,64"]),
    ],
)
@pytest.mark.parametrize("gateway", ["fd00:76::1", None])
def test_process_advertises_and_assigns_what_the_ipv6_subnet_says(
    mode: str, options: list[str], gateway: str | None
) -> None:
    subnet = Subnet6(ra_mode=mode, address_mode=mode, enable_dhcp=True, gateway=gateway)
    lines = configuration(make_network(cidr6="fd00:76::/64", subnet6=subnet))
    without_route = ["ra-param=*,0,0"] if gateway is None else []
    assert [line for line in lines if line not in configuration(NETWORK)] == options + without_route


def test_ipv6_subnet_without_dhcp_is_not_advertised() -> None:
    subnet = Subnet6(enable_dhcp=False, gateway="fd00:76::1")
    assert configuration(make_network(cidr6="fd00:76::/64", subnet6=subnet)) == configuration(NETWORK)


def test_ipv6_of_an_operators_network_is_advertised() -> None:
    assert "dhcp-range=fd00:76::,ra-only" in configuration(make_network(cidr6="fd00:76::/64"))


def test_resolver_listens_at_the_address_of_links_only() -> None:
    lines = dhcp.resolver_configuration().splitlines()
    assert lines[-3:] == ["port=9053", "listen-address=169.254.192.1", "bind-interfaces"]
    assert "no-resolv" not in lines, "it asks the name servers of this machine"


def test_network_of_another_version_is_refused() -> None:
    with pytest.raises(exceptions.VirtDriverError, match="network private is not IPv4: fd00::/64"):
        configuration(make_network(cidr="fd00::/64"))


# --- processes


@pytest.fixture
def process(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with the command line and the file of the network's dnsmasq. It ends with its input."""
    command = ["sh", "-c", "read line", f"--conf-file={directory}/{NAME}.conf"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as started:
        (directory / f"{NAME}.pid").write_text(f"{started.pid}\n")
        wait_for("its command line", lambda: dhcp.is_running(NAME), 20)
        yield started


def test_process_of_another_program_with_the_number_is_none(
    directory: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dhcp.is_running(NAME)
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("it is not ours"))
    for text in ("", "x", str(os.getpid()), str(2**22 + 1)):
        (directory / f"{NAME}.pid").write_text(text)
        assert not dhcp.is_running(NAME)
        dhcp.reload(NAME)
    (directory / f"{NAME}.pid").unlink()
    assert not dhcp.is_running(NAME)


@pytest.mark.parametrize("realm", ["r", None])
def test_process_starts_in_its_realm(
    directory: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, realm: str | None
) -> None:
    monkeypatch.setattr(namespaces, "has_manager", lambda: False)
    dhcp.run(NAME, "text\n", realm)
    enter = "nsenter --net=/run/netns/nl-r -- " if realm else ""
    assert ran == [f"{enter}dnsmasq --conf-file={directory}/{NAME}.conf"]
    path = directory / f"{NAME}.conf"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("text\n", 0o644)


@pytest.mark.parametrize("realm", ["r", None])
def test_manager_of_the_machine_starts_the_process_again_when_it_fails(
    directory: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, realm: str | None
) -> None:
    monkeypatch.setattr(namespaces, "has_manager", lambda: True)
    dhcp.run(NAME, "text\n", realm)
    inside = "--property NetworkNamespacePath=/run/netns/nl-r " if realm else ""
    assert ran == [
        f"systemd-run --quiet --collect --unit=nova-lite-dhcp-{NETWORK.id}.service --property Type=forking "
        f"--property PIDFile={directory}/{NAME}.pid --property Restart=on-failure --property RestartSec=500ms "
        f"--property StartLimitIntervalSec=0 {inside}"
        f"dnsmasq --conf-file={directory}/{NAME}.conf"
    ]


def test_process_with_the_configuration_goes_on_and_another_one_is_replaced(
    directory: Path, process: subprocess.Popen[bytes], ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "has_manager", lambda: False)
    (directory / f"{NAME}.conf").write_text("text\n")
    dhcp.run(NAME, "text\n", "r")
    assert ran == [] and process.poll() is None
    dhcp.run(NAME, "changed\n", "r")
    assert process.wait(10) == -signal.SIGTERM
    assert len(ran) == 1 and (directory / f"{NAME}.conf").read_text() == "changed\n"


@pytest.mark.parametrize(("program", "waits"), [("dnsmasq", True), ("other", False)])
def test_process_that_crashes_is_awaited_until_its_sockets_are_free(
    directory: Path, monkeypatch: pytest.MonkeyPatch, program: str, waits: bool
) -> None:
    """A crashed process has no command line. Until it is gone, the next one cannot listen at its addresses."""
    (directory / program).symlink_to("/bin/true")
    held = [True, True]
    monkeypatch.setattr(namespaces, "has_manager", lambda: False)
    monkeypatch.setattr(dhcp, "_has_files", lambda pid: bool(held) and held.pop())
    with subprocess.Popen([directory / program], stdin=subprocess.DEVNULL) as crashed:
        os.waitid(os.P_PID, crashed.pid, os.WEXITED | os.WNOWAIT)  # it stays as a zombie
        (directory / f"{NAME}.pid").write_text(f"{crashed.pid}\n")
        dhcp.stop(NAME)
    assert held == ([] if waits else [True, True])


def test_manager_ends_a_process_that_it_has_started(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(*command: str) -> None:
        ran.append(" ".join(command))
        process.kill()
        process.wait(10)

    monkeypatch.setattr(namespaces, "has_manager", lambda: True)
    monkeypatch.setattr(namespaces, "run", run)
    dhcp.stop(NAME)
    dhcp.stop(NAME)
    assert ran == [f"systemctl stop nova-lite-dhcp-{NETWORK.id}.service"], "the second call has nothing to do"


def test_process_that_the_manager_does_not_know_ends_by_a_signal(
    process: subprocess.Popen[bytes], ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon has started it when this machine had no manager, or in another network namespace."""
    monkeypatch.setattr(namespaces, "has_manager", lambda: True)
    dhcp.stop(NAME)
    assert process.wait(10) == -signal.SIGTERM


def test_process_that_does_not_end_is_an_error(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "has_manager", lambda: False)
    monkeypatch.setattr(dhcp, "_PATIENCE", 0.0)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    with pytest.raises(exceptions.VirtDriverError, match=rf"dnsmasq of {NAME} \(process {process.pid}\) does not end"):
        dhcp.stop(NAME)


def test_process_reads_removed_reservations_after_a_signal(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    dhcp.reload(NAME)
    assert sent == [(process.pid, signal.SIGHUP)]


# --- leases


def write_leases(directory: Path, *leases: str) -> Path:
    path = directory / f"{NAME}.leases"
    path.write_text("duid 00:01:00:01\n" + "".join(f"1700000000 {lease}\n" for lease in leases))
    return path


@pytest.mark.parametrize("client", [f"01:{MAC}", "*"])
def test_release_names_bridge_address_and_client_in_the_realm(directory: Path, ran: list[str], client: str) -> None:
    write_leases(directory, f"{MAC} {ADDRESS} web {client}")
    dhcp.release(NETWORK, "r", ADDRESS, lambda mac_address: True)
    assert ran == [f"nsenter --net=/run/netns/nl-r -- dhcp_release nltest0 {ADDRESS} {MAC} {client}"]


def test_release_leaves_leases_that_are_not_obsolete(directory: Path, ran: list[str]) -> None:
    write_leases(directory, f"{MAC.upper()} {ADDRESS} web *", f"{OTHER} {ADDRESS} * *")
    dhcp.release(NETWORK, "r", ADDRESS, lambda mac_address: mac_address == MAC)
    assert [command.split()[-2] for command in ran] == [MAC]


def test_failed_release_is_only_logged(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*command: str) -> None:
        raise exceptions.VirtDriverError(reason="dhcp_release cannot be run: No such file or directory")

    monkeypatch.setattr(namespaces, "run", fail)
    write_leases(directory, f"{MAC} {ADDRESS} web *")
    dhcp.release(NETWORK, "r", ADDRESS, lambda mac_address: True)
    assert f"The DHCP lease of {ADDRESS} on {NETWORK.id} stays until it expires" in caplog.text


def test_leases_are_found_by_address(directory: Path) -> None:
    path = write_leases(directory, f"{MAC} {ADDRESS} web *", f"{OTHER} 10.76.0.11 * *")
    assert dhcp.find_leases(str(path), ADDRESS) == [(MAC, "*")]


@pytest.mark.parametrize("content", [None, "", "1700000000 fa:16", f"1700000000 {MAC} {ADDRESS} web"])
def test_incomplete_list_has_no_leases(directory: Path, content: str | None) -> None:
    path = directory / f"{NAME}.leases"
    if content is not None:
        path.write_text(content)
    assert dhcp.find_leases(str(path), ADDRESS) == []
