"""Removal of a host's guests and networks: by nova-lite-setup, and by the postrm of the Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nova_lite.cmd.setup import guests, machine
from nova_lite.virt.libvirt.net import dhcp, names, namespaces, realms
from tests.support import postrm
from tests.support.mounts import NO_MOUNTS, Mounts

#: A program that prints a known reply. It fails for another question, and writes down anything else: a change. Devices
#: that ``ip`` deletes are gone.
PROGRAM = """#!/bin/sh
line=$(echo "$(basename "$0") $*" | sed 's/ --quiet\\| --connect qemu:...system\\| --wait//g')
file=$REPLIES/$(echo "$line" | tr / _)
if [ -e "$file" ]; then
    cat "$file"
    exit
fi
case "$line" in
*list*|*show*|*dumpxml*|*is-active*) exit 1 ;;
esac
case "$line" in
"ip -batch -") sed 's/^/ip /' ;;
*) echo "$line" ;;
esac | while read -r line; do
    echo "$line" >>"$REPLIES/../changes"
    case "$line" in
    "ip link delete dev "*) rm -rf "$REPLIES/../sys/class/net/${line##* }" ;;
    esac
done
"""
ALIAS = "<network><name>nova-lite-{id}</name><forward mode='bridge'/><bridge name='nlbr{id}'/></network>"
FOREIGN = "<network><name>nova-lite-4</name><forward mode='nat'/><bridge name='nlbr4'/></network>"
CHANGES = f"""virsh undefine --nvram --managed-save --snapshots-metadata --checkpoints-metadata guest
virsh net-destroy nova-lite-1-a
virsh net-undefine nova-lite-1-a
ip netns delete nova-lite-lb-9
ip link delete dev {names.gateway_name("1-a")}
ip link delete dev nlvx77
ip link delete dev nlbr1
ip link delete dev {names.uplink_name("r")}
ip netns delete nl-r
ip address delete 169.254.192.1/32 dev lo
iptables -D FORWARD -j NOVA_LITE_LINKS
iptables -F NOVA_LITE_LINKS
iptables -X NOVA_LITE_LINKS
ip6tables -D FORWARD -j NOVA_LITE_LINKS
ip6tables -F NOVA_LITE_LINKS
ip6tables -X NOVA_LITE_LINKS
nft delete table inet nova_lite_ports_h1
nft delete table bridge nova_lite_tunnels_h1
nft delete table inet nova_lite_links_h1
ip address delete 203.0.113.7/32 dev eth9
ip address delete 203.0.113.8/32 dev eth9
"""


class Host:
    """A machine below a directory: its files, and programs that reply.

    It has a guest and a network of ours in a router's realm, and a load balancer. Another network of ours has a guest
    of another program. A network of libvirt only has a name like ours.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.replies = path, path / "replies"
        self.leases, self.instances = path / "var/lib/libvirt/dnsmasq", path / "var/lib/nova-lite/instances"
        for directory in (self.replies, self.leases / "nova-lite-1-a.d", self.leases / "nova-lite-2.d", self.instances):
            directory.mkdir(parents=True)
        (path / "etc/nova-lite").mkdir(parents=True)
        (path / "etc/nova-lite/compute.conf").write_text("[DEFAULT]\nhost = h1\n[network]\npublic_interface = eth9\n")
        (self.instances / "floating@h1.json").write_text('["203.0.113.7", "203.0.113.8"]')
        (self.leases / "nova-lite-1-a.conf").touch()
        self._make_devices()
        (path / "bin").mkdir()
        for name in ("virsh", "nft", "ip", "iptables", "ip6tables", "systemctl"):
            (path / "bin" / name).write_text(PROGRAM)
            (path / "bin" / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{path / 'bin'}:/usr/bin:/bin")
        monkeypatch.setenv("REPLIES", str(self.replies))
        monkeypatch.setattr(guests, "INSTANCES", self.instances)
        monkeypatch.setattr(dhcp, "DIRECTORY", str(self.leases))
        monkeypatch.setattr(realms, "NET", str(path / "sys/class/net"))
        monkeypatch.setattr(namespaces, "DIRECTORY", str(path / "run/netns"))
        monkeypatch.setattr(namespaces, "SYSTEMD", str(path / "run/systemd/system"))
        monkeypatch.setattr(machine, "CONFIGURATION", path / "etc/nova-lite")
        for line, text in {
            "systemctl is-active libvirtd.socket": "",
            "virsh list --all --uuid": "guest\nothers\n\n",
            "virsh dumpxml guest": f"<source file='{self.instances}/1/disk'/>",
            "virsh dumpxml others": "<source file='/srv/disk'/>",
            "virsh net-list --all --name": "nova-lite-1-a\nnova-lite-4\ndefault\n\n",
            "virsh net-dumpxml nova-lite-1-a": ALIAS.format(id="1-a"),
            "virsh net-dumpxml nova-lite-4": FOREIGN,
            "ip netns list": "nova-lite-lb-9 (id: 3)\nnl-2\nnl-r (id: 1)\nothers\n",
            "ip netns pids nova-lite-lb-9": "",
            "nft list table inet nova_lite_ports_h1": "",
            "nft list table bridge nova_lite_tunnels_h1": "",
            "nft list table inet nova_lite_links_h1": "",
        }.items():
            (self.replies / line.replace("/", "_")).write_text(text)
        self.expected = CHANGES.splitlines()

    def _make_devices(self) -> None:
        """Make bridges with their members, realms with their links, and a load balancer."""
        net = self.path / "sys/class/net"
        for bridge, network_id, members in (
            ("nlbr1", "1-a", [names.gateway_name("1-a"), "nlvx77"]),
            ("nlbr2", "2", [names.gateway_name("2"), "nlvx78", "vnet3"]),
            ("nlbr4", None, ["vnet4"]),
        ):
            (net / bridge / "brif").mkdir(parents=True)
            (net / bridge / "ifalias").write_text("" if network_id is None else f"{realms.ALIAS}{network_id}\n")
            for member in members:
                (net / bridge / "brif" / member).touch()
        for device, alias in (
            (names.gateway_name("1-a"), "r"),
            (names.gateway_name("2"), "2"),
            (names.uplink_name("r"), "r"),
            (names.uplink_name("2"), "2"),
        ):
            (net / device).mkdir()
            (net / device / "ifalias").write_text(f"{alias}\n")
        for name in ("nova-lite-lb-9", "nl-2", "nl-r", "others"):
            (self.path / "run/netns").mkdir(parents=True, exist_ok=True)
            (self.path / "run/netns" / name).touch()

    def changes(self) -> list[str]:
        file = self.path / "changes"
        return file.read_text().splitlines() if file.exists() else []

    def purge(self, package: str) -> subprocess.CompletedProcess[str]:
        """Run a package's script for a purge, with all its paths below this directory."""
        environment = {**os.environ, "DPKG_MAINTSCRIPT_PACKAGE": package}
        command = ["sh", "-c", postrm.script(package, self.path), "postrm", "purge"]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_removal_ends_guests_and_removes_their_networks_by_exact_names(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    guests.remove()
    assert host.changes() == ["virsh destroy guest", *host.expected]
    assert capsys.readouterr().out == "Network 2 stays: its bridge nlbr2 has vnet3.\n"
    assert [path.name for path in host.leases.iterdir()] == ["nova-lite-2.d"]


def test_purge_of_the_package_removes_what_the_removal_does(host: Host) -> None:
    done = host.purge("nova-lite-compute")
    assert done.returncode == 0, done.stderr
    assert host.changes() == host.expected
    assert done.stderr == "Network 2 is left: its bridge nlbr2 has vnet3 \n"
    assert [path.name for path in host.leases.iterdir()] == ["nova-lite-2.d"]
    assert not host.instances.exists()


@pytest.mark.parametrize("package", ["nova-lite-common", "nova-lite-compute"])
def test_purge_of_a_host_with_a_running_guest_is_refused_and_its_disks_stay(host: Host, package: str) -> None:
    running = host.path / "run/libvirt/qemu"
    running.mkdir(parents=True)
    (running / "others.xml").write_text("<source file='/srv/disk'/>")
    (running / "instance-1.xml").write_text(f"<source file='{host.instances}/1/disk'/>")
    done = host.purge(package)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{package}: guests run: instance-1 \n")
    assert host.changes() == [] and host.instances.exists()


@NO_MOUNTS
@pytest.mark.parametrize("remove", ["setup", "packages"])
def test_removal_of_a_network_leaves_what_is_mounted_in_its_files(host: Host, mounts: Mounts, remove: str) -> None:
    (host.path / "others").mkdir()
    (host.path / "others/file").touch()
    mounts.bind(host.path / "others", host.leases / "nova-lite-1-a.d")
    if remove == "packages":
        assert "something is mounted there" in host.purge("nova-lite-compute").stderr
    else:
        with pytest.raises(OSError, match="something is mounted there"):
            guests.remove()
    assert (host.path / "others/file").exists()


def test_removal_takes_away_floating_addresses_of_this_host_alone(host: Host) -> None:
    (host.instances / "floating@h2.json").write_text('["203.0.113.9"]')
    guests.remove()
    assert host.changes() == ["virsh destroy guest", *host.expected]
    (host.path / "changes").unlink()
    assert host.purge("nova-lite-compute").returncode == 0
    assert not any("203.0.113.9" in line for line in host.changes())


def test_purge_without_libvirt_ends_without_an_error(host: Host) -> None:
    shutil.rmtree(host.replies)
    host.replies.mkdir()
    done = host.purge("nova-lite-compute")
    assert done.returncode == 0
    assert done.stderr.startswith("nova-lite-compute: libvirt does not answer")
