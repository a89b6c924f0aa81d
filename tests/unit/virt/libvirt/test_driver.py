"""Redefinition of a domain. `tests/integration/libvirt/test_hardware.py` uses the real libvirt."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.objects import Flavor, Image, LiveSource
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.context import HostContext
from nova_lite.virt.libvirt.disks.disks import Disk, DiskSet
from nova_lite.virt.libvirt.disks.secrets import OwnKeys
from nova_lite.virt.libvirt.domain import consoles, guest_xml
from nova_lite.virt.libvirt.domain.guests import GuestDefinitions
from nova_lite.virt.libvirt.domain.launch import Launcher
from nova_lite.virt.libvirt.domain.live_moves import LiveMoves
from nova_lite.virt.libvirt.host.machine import HostMachine
from tests.support.guests import make_instance, make_spec
from tests.unit.virt.libvirt.scripted import Calls, failure


class Parts(Calls):
    """Parts of a driver that record calls in order. The domain and its directory have ``generation``."""

    def __init__(self, generation: int) -> None:
        self.done: list[str] = []
        self.xml = ""
        self._generation = generation
        self.disks = DiskSet(disks=[Disk(path="/i/disk", device="vda", format="qcow2")], direct_boot=None)

    def get(self, instance_uuid: str) -> Any:
        domain = SimpleNamespace(
            hasManagedSaveImage=lambda flags: True, managedSaveRemove=lambda flags: self.done.append("memory")
        )
        return domain, SimpleNamespace(generation=self._generation)

    def cut_power(self, domain: Any) -> None:
        self.done.append("power")

    def define(self, xml: str) -> None:
        self.done.append("define")
        self.xml = xml

    def generation(self, instance_uuid: str) -> int:
        return self._generation

    def directory(self, instance_uuid: str) -> str:
        return "/i"

    def adopt(self, directory: str, spec: SpawnSpec, fetcher: None) -> DiskSet:
        return self.disks

    def forget(self, instance_uuid: str) -> None:
        self.done.append("rescue")

    def listeners(self) -> consoles.Listeners:
        return consoles.NONE


def make(conf: cfg.ConfigOpts, parts: Any) -> tuple[HostContext, HostMachine]:
    context = HostContext(conf, "h", TIMING.libvirt, parts, parts, parts)
    machine = HostMachine(context, parts, None)
    machine.virt_type = "qemu"
    machine.properties = guest_xml.Host(machine="q35")
    return context, machine


def definitions(conf: cfg.ConfigOpts, parts: Any) -> GuestDefinitions:
    context, machine = make(conf, parts)
    return GuestDefinitions(context, Launcher(context, machine, parts, parts), parts, parts)


def test_renew_turns_the_domain_off_and_redefines_it(conf: cfg.ConfigOpts) -> None:
    """The instance may have been accepted before its hardware was checked."""
    parts = Parts(generation=1)
    specs = {"hw:watchdog_action": "reset", "hw:viommu_model": "intel"}
    flavor = Flavor(flavorid="1", name="f", vcpus=1, memory_mb=64, root_gb=1, extra_specs=specs)
    definitions(conf, parts).renew(make_spec(instance=make_instance(flavor=flavor), image=Image(id="i", name="i")))
    assert parts.done == ["memory", "power", "define", "rescue"]
    assert 'machine="q35"' in parts.xml
    assert '<watchdog model="i6300esb" action="reset"' in parts.xml


class Starting(Parts):
    """Parts that start and remove a guest with a vGPU."""

    def __init__(self) -> None:
        super().__init__(1)
        self.vgpus = (
            "<domain><devices><hostdev type='mdev'><source><address uuid='u'/></source></hostdev></devices></domain>"
        )

    def get(self, instance_uuid: str) -> Any:
        return SimpleNamespace(isActive=lambda: False), None

    def description(self, domain: Any) -> str:
        return self.vgpus

    def make(self, uuids: list[str]) -> None:
        self.done.append(f"make {uuids}")

    def remove(self, removed: str | list[str]) -> str:
        self.done.append(f"remove {removed}")
        return self.vgpus

    def ensure_free_port(self, domain: Any, xml: str) -> None:
        pass

    def loaded(self, encrypted: list[str], own: OwnKeys) -> Any:
        return contextlib.nullcontext()

    def start(self, domain: Any, instance_uuid: str, timeout: float, paused: bool, saved: None) -> None:
        self.done.append("start")


def launcher(conf: cfg.ConfigOpts, parts: Any) -> Launcher:
    context, machine = make(conf, parts)
    machine.vgpus = parts
    return Launcher(context, machine, parts, parts)


def test_guest_gets_its_vgpus_before_it_starts(conf: cfg.ConfigOpts) -> None:
    parts = Starting()
    launcher(conf, parts).start(parts.get("i")[0], "i")
    assert parts.done == ["make ['u']", "start"]


def test_vgpus_of_a_guest_are_removed_after_its_domain(conf: cfg.ConfigOpts) -> None:
    parts = Starting()
    launcher(conf, parts).remove("i")
    assert parts.done == ["remove i", "remove ['u']"]


def test_renew_leaves_another_generation_alone(conf: cfg.ConfigOpts) -> None:
    parts = Parts(generation=2)
    with pytest.raises(exceptions.DomainNotFound):
        definitions(conf, parts).renew(make_spec(image=Image(id="i", name="i")))
    assert parts.done == []


def test_destination_that_encrypts_refuses_a_source_that_does_not(conf: cfg.ConfigOpts) -> None:
    conf.set_override("live_migration_tls", True, "libvirt")
    source = LiveSource(driver="libvirt", disks={}, address="192.0.2.1", host="h1", encrypts=False)
    parts: Any = Parts(1)
    moves = LiveMoves(*make(conf, parts), *[parts] * 7)
    with pytest.raises(exceptions.MigrationPreCheckError) as refusal:
        moves.prepare(make_spec(), source)
    assert "live_migration_tls is true on host h and false on host h1: set it on both" in refusal.value.message


EFI = "<os><enum name='firmware'><value>efi</value></enum></os>"


@pytest.mark.parametrize("efi", [EFI, "", None])
def test_host_emulates_an_architecture_or_does_not_start(conf: cfg.ConfigOpts, efi: str | None) -> None:
    """``efi`` None: libvirt has no emulator."""
    conf.set_override("virt_type", "qemu", "libvirt")
    conf.set_override("emulated_architectures", ["aarch64"], "libvirt")
    queries = []

    def answer(name: str, *arguments: Any) -> Any:
        if arguments[1:2] == ("aarch64",):
            queries.append(arguments)
            if efi is None:
                raise LibvirtFailure(failure(libvirt.VIR_ERR_INVALID_ARG, message="no emulator"))
            return f"<domainCapabilities>{efi}</domainCapabilities>"
        mode = "<cpu><mode name='maximum' supported='yes'/></cpu>"
        return 1 if name == "getVersion" else f"<domainCapabilities>{mode}</domainCapabilities>"

    parts: Any = SimpleNamespace(connect_call=answer)
    machine = HostMachine(HostContext(conf, "h", TIMING.libvirt, parts, parts, parts), parts, None)
    if efi:
        machine.prepare()
        assert {"COMPUTE_ARCH_AARCH64", "COMPUTE_ARCH_X86_64"} <= set(machine._traits)
        assert "COMPUTE_FIRMWARE_UEFI" not in machine._traits, "that is the firmware of the host's architecture"
    else:
        with pytest.raises(exceptions.ConfigurationError, match=r"host h \(.*\): install qemu-system-arm"):
            machine.prepare()
    assert queries == [(None, "aarch64", "virt", "qemu", 0)]


def test_host_with_spice_enabled_and_a_qemu_without_it_does_not_start(conf: cfg.ConfigOpts) -> None:
    conf.set_override("virt_type", "qemu", "libvirt")
    conf.set_override("enabled", True, "spice")
    parts: Any = SimpleNamespace(connect_call=lambda *arguments: "<domainCapabilities><devices/></domainCapabilities>")
    machine = HostMachine(HostContext(conf, "h", TIMING.libvirt, parts, parts, parts), parts, None)
    with pytest.raises(exceptions.ConfigurationError, match="qemu has no SPICE on host h: install"):
        machine.prepare()
