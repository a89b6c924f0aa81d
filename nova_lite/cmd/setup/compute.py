"""The steps that make a compute host: packages, keys, admission by the cloud, configuration, libvirt, daemon.

Nothing secret leaves the machine: it sends public keys and the hash of a password.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from urllib.parse import quote

from nova_lite.base import exceptions, files, host_certificates
from nova_lite.base.host_certificates import CLIENT_KEY, CONSOLES, SERVER_KEY
from nova_lite.base.join_requests import JoinBody
from nova_lite.cmd.setup import admission, libvirt, machine, settings, units
from nova_lite.cmd.setup.admission import AUTHORITY, CERTIFICATES, KEYS, MEMORY, POLL, STATE
from nova_lite.cmd.setup.joining import Host, Setup
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.cmd.setup.steps import Step
from nova_lite.rpc import keys

UNIT = "nova-lite-compute"

PACKAGES = (
    "libvirt-daemon-system",
    "libvirt-clients",
    "qemu-system-x86",
    "qemu-utils",
    "dnsmasq-base",
    "dnsmasq-utils",
    # The smallest Debian 13 has no mkfs.ext4.
    "e2fsprogs",
    "iptables",
    # netbase: nft looks up the names of protocols in its file.
    "netbase",
    "nftables",
    "ovmf",
    "rsync",
    "openssh-client",
    "swtpm",
    "swtpm-tools",
)
#: MiB that have to be free for images, guests and logs.
_FREE_MB = 1000
#: Seconds that the daemon may take until it is up.
_UP_SECONDS = 120


def _interface_of(address: str) -> str:
    """Return the interface that has an address, at which the host then answers for floating addresses."""
    try:
        found = json.loads(machine.run("ip", "-json", "address", "show", "to", address))
        return str(next(item["ifname"] for item in found if item.get("ifname")))
    except (ValueError, StopIteration) as error:
        raise exceptions.ConfigurationError(reason=f"no interface has the address {address}.") from error


def steps(wanted: Host) -> list[Step]:
    setup = HostSetup(wanted)
    return [
        Step("Checking this machine", setup.check_machine),
        Step("Reaching the cloud", setup.reach),
        Step("Installing packages", setup.install_packages),
        Step("Creating users and directories", units.create_users),
        Step("Creating keys", setup.create_keys),
        Step("Joining the cloud", setup.join),
        Step("Writing the configuration", setup.write_configuration),
        Step("Setting up libvirt", setup.set_up_libvirt),
        Step("Starting the daemon", _start_daemon),
        Step("Checking the host", setup.check_host),
    ]


def farewell(wanted: Host) -> str:
    return f"\nHost {wanted.name} is up, and takes servers."


class HostSetup(Setup):
    """The set-up of one host."""

    _packages = PACKAGES

    # --- before anything is changed

    def check_machine(self) -> str:
        wanted = self._wanted
        if not settings.has_systemd():
            raise exceptions.ConfigurationError(reason="this machine does not run systemd, which runs the daemon.")
        if not (Path(sys.executable).parent / UNIT).exists():
            raise exceptions.ConfigurationError(
                reason=f"{UNIT} is not in {Path(sys.executable).parent}: install the package first."
            )
        machine.require_space("/var/lib", _FREE_MB)
        machine.require_space("/etc", 1)
        known = admission.memory()
        if known is not None and known.host != wanted.name:
            raise exceptions.ConfigurationError(
                reason=f"this machine joined as {known.host}: give it that name again, or remove it first "
                "(nova-lite-setup remove --purge --yes)."
            )
        if known is None and (CERTIFICATES / host_certificates.SERVER_CERTIFICATE).exists():
            raise exceptions.ConfigurationError(reason=f"{CERTIFICATES} has other certificates: move them away.")
        libvirt.check()
        return f"{wanted.name} at {wanted.address}"

    # --- keys and admission

    def create_keys(self) -> str:
        """Make what does not exist: the key for messages, those of the certificates, and the account's password."""
        KEYS.mkdir(mode=0o755, parents=True, exist_ok=True)
        made = 0
        if not self._key.exists():
            files.write_atomically(str(self._key), keys.PrivateKey.generate().pem(), mode=0o600)
            made += 1
        for place in (CERTIFICATES / SERVER_KEY, CERTIFICATES / CONSOLES / SERVER_KEY):
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not place.exists():
                owner = machine.ids("libvirt-qemu")
                files.write_atomically(str(place), host_certificates.new_key(), mode=0o600, owner=owner)
                made += 1
        # qemu wants the same key under both names.
        copy = CERTIFICATES / CLIENT_KEY
        if not copy.exists():
            content = (CERTIFICATES / SERVER_KEY).read_bytes()
            files.write_atomically(str(copy), content, mode=0o600, owner=machine.ids("libvirt-qemu"))
        if admission.memory() is None:
            admission.make_memory(MEMORY, self._wanted.name)
            made += 1
        return f"{made} made" if made else "all are there"

    def join(self) -> str:
        """Send the request until the registrar has admitted this host. Then write the secrets of the cloud."""
        wanted = self._wanted
        state = admission.wait_until_joined(self._send)
        self._reply = admission.accept(state, self._authority, wanted.token.address, wanted.name, self._key)
        return f"as {self._reply.user} at {self._reply.broker}"

    @property
    def _key(self) -> Path:
        return admission.message_key(self._wanted.name)

    def _body(self) -> JoinBody:
        return admission.body(self._wanted.address, self._key)

    # --- this machine

    def write_configuration(self) -> str:
        reply, memory, wanted = self._reply, admission.memory(), self._wanted
        assert reply is not None and memory is not None, "Earlier steps found them."
        user, password = quote(reply.user, safe=""), quote(memory.password, safe="")
        sections = {
            "DEFAULT": {
                "transport_url": f"rabbit://{user}:{password}@{reply.broker}/{quote(reply.vhost, safe='')}",
                "host": wanted.name,
                "my_ip": wanted.address,
                "state_path": str(STATE),
            },
            "oslo_messaging_rabbit": {"ssl": "true", "ssl_ca_file": str(AUTHORITY)},
            "rpc": {
                "keys_directory": str(KEYS),
                "trust_address": wanted.token.address,
                "trust_ca_file": str(AUTHORITY),
            },
            "image": {"store_address": wanted.token.address},
            "libvirt": {"live_migration_tls": "true"},
            "network": {"public_interface": _interface_of(wanted.address)},
        } | reply.settings
        written = machine.write_once(CONFIGURATION / "nova-lite.conf", machine.ini({}), "nova-lite")
        written |= machine.write_once(CONFIGURATION / "compute.conf", machine.ini(sections))
        return f"in {CONFIGURATION}" if written else f"what {CONFIGURATION} has, stays"

    def set_up_libvirt(self) -> str:
        """Start libvirtd, with TLS for moves, and for consoles if the cloud's proxies have it."""
        assert self._reply is not None, "An earlier step found it."
        has_console_tls = self._reply.settings.get("serial_console", {}).get("tls") == "true"
        return libvirt.set_up(self._wanted.address, has_console_tls)

    def check_host(self) -> str:
        """Wait until the conductor has the host as up."""
        deadline = time.monotonic() + _UP_SECONDS
        while not self._send().up:
            if time.monotonic() > deadline:
                raise exceptions.ConfigurationError(reason=f"the host is not up: {units.last_line(UNIT)}")
            time.sleep(POLL)
        return "the host is up"


def _start_daemon() -> str:
    return units.start([UNIT])
