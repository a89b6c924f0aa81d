"""Processors in libvirt's words: the largest one of this host's guests, that of a running guest, and their comparison.

libvirt compares and expands a guest's description of a processor (``mode="custom"``). In a host's description, which
has no mode, libvirt counts disabled features as present.
"""

from __future__ import annotations

import copy
import logging
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Iterator

import libvirt
import msgspec

from nova_lite.hardware import continuing
from nova_lite.objects import GuestCpu, HostCpu, LiveSource
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.host import kvm

LOG = logging.getLogger(__name__)

ARCHITECTURE = "x86_64"

_EXPAND = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
_EXPLAIN = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
#: Signs of `HostCpu.definition`.
_SIGNS = {"require": "+", "disable": "-"}
#: Failures of a libvirt that compares with the machine's processor only.
_TOO_OLD = (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_OPERATION_UNSUPPORTED)
#: The end of libvirt's sentence about missing features.
_MISSING = re.compile(r"required features: (?P<names>[\w.,+ -]+)$")


class GuestCpus:
    """Processors of this host's guests. ``domain_capabilities`` and ``capabilities``: libvirt's descriptions of the
    host. ``architectures``: of its guests."""

    def __init__(
        self,
        connection: Connection,
        virt_type: str,
        domain_capabilities: str,
        capabilities: str,
        architectures: Collection[str] = (ARCHITECTURE,),
    ) -> None:
        self._connection = connection
        self._architectures = architectures
        self._virt_type = virt_type
        self._expanded: dict[str, frozenset[str]] = {}
        #: Version of qemu. It is read with each inventory, since qemu may be upgraded meanwhile.
        self.hypervisor = int(connection.connect_call("getVersion"))
        self._largest = _largest(domain_capabilities)
        self.host = self._describe(capabilities)

    def _describe(self, capabilities: str) -> HostCpu | None:
        """Return the largest processor; None if libvirt does not know it."""
        if self._largest is None:
            return None
        return HostCpu(
            virt_type=self._virt_type,
            vendor=self._largest.findtext("vendor", ""),
            definition=definition(self._largest),
            features=self._features(_text(self._largest)),
            machines=" ".join(sorted(_machines(capabilities, self._architectures))),
            libvirt=int(self._connection.connect_call("getLibVersion")),
        )

    def features(self, cpu: str) -> frozenset[str]:
        """Return all features of a processor. Raises `LibvirtFailure` if libvirt does not know its model."""
        found = self._expanded.get(cpu)
        if found is None:
            text = self._connection.connect_call(
                "baselineHypervisorCPU", None, ARCHITECTURE, None, self._virt_type, [cpu], _EXPAND
            )
            features = ET.fromstring(text).iterfind("feature")  # noqa: S314 libvirt's own
            found = frozenset(item.get("name", "") for item in features if item.get("policy") != "disable")
            self._expanded[cpu] = found
        return found

    def _features(self, cpu: str) -> str:
        """Return the features as in `HostCpu`; none if libvirt does not know them. It still compares the processor."""
        try:
            return " ".join(sorted(self.features(cpu)))
        except LibvirtFailure as error:
            LOG.warning("The features of a guest's processor are unknown: %s", error.message)
            return ""

    # --- running guests

    def guest(self, domain: str) -> tuple[GuestCpu | None, str]:
        """Return processor and machine of the guest with this XML, and the XML of its processor; None and an empty
        text if they are unknown."""
        root = ET.fromstring(domain)  # noqa: S314 libvirt's own
        cpu, system = self._processor(root), root.find("os/type")
        if cpu is None or system is None:
            return None, ""
        found = GuestCpu(
            virt_type="",
            machine=system.get("machine", ""),
            hypervisor=self.hypervisor,
            libvirt=0 if self.host is None else self.host.libvirt,
        )
        if system.get("arch", ARCHITECTURE) != ARCHITECTURE:
            return found, ""
        xml = _text(cpu)
        own = {"virt_type": root.get("type", ""), "vendor": cpu.findtext("vendor", ""), "features": self._features(xml)}
        return msgspec.structs.replace(found, **own), xml

    def _processor(self, domain: ET.Element) -> ET.Element | None:
        """Return the guest's processor. If it is the host's own, libvirt does not describe it: it is the
        largest one."""
        cpu = domain.find("cpu")
        if cpu is None or self._largest is None:
            return None
        if cpu.get("mode") in ("host-passthrough", "maximum"):
            found = copy.deepcopy(self._largest)
        elif cpu.find("model") is not None:
            found = custom(cpu.findtext("model", ""), cpu.findtext("vendor", ""))
            if domain.get("type") == kvm.KVM and found.find("vendor") is None:
                # KVM shows the vendor of the host, whatever the model.
                ET.SubElement(found, "vendor").text = self._largest.findtext("vendor", "")
        else:
            return None
        return _with_features(found, _policies(cpu))

    # --- comparison

    def check(self, source: LiveSource) -> None:
        """Raise `MigrationPreCheckError` if the guest cannot continue here."""
        guest = source.guest_cpu
        if guest is None or self.host is None:
            return
        found = continuing.of_machine(guest, self.host, self.hypervisor)
        if source.cpu_xml and guest.virt_type == self._virt_type:
            found += self.lacking(source.cpu_xml)
        continuing.require(found)

    def lacking(self, cpu: str) -> list[str]:
        """Return what this host lacks for a processor, as libvirt finds it."""
        try:
            self._connection.connect_call(
                "compareHypervisorCPU", None, ARCHITECTURE, None, self._virt_type, cpu, _EXPLAIN
            )
        except LibvirtFailure as error:
            if error.error_code in _TOO_OLD:
                return self._compare_with_machine(cpu)
            return _explained(error)
        return []

    def _compare_with_machine(self, cpu: str) -> list[str]:
        """Compare with the machine's own processor, which emulated guests do not use."""
        if self._virt_type != kvm.KVM:
            return []
        try:
            self._connection.connect_call("compareCPU", cpu, _EXPLAIN)
        except LibvirtFailure as error:
            return _explained(error)
        return []


def _explained(error: LibvirtFailure) -> list[str]:
    """Return the missing features that libvirt names. Raises ``error`` if it is not about the processor."""
    if error.error_code != libvirt.VIR_ERR_CPU_INCOMPATIBLE:
        raise error
    reason = str(error.kwargs["reason"])
    found = _MISSING.search(reason)
    return [f"its processor lacks {found['names']}" if found else reason]


def _largest(domain_capabilities: str) -> ET.Element | None:
    """Return libvirt's model of the host for guests; None if it has none."""
    found = ET.fromstring(domain_capabilities).find("cpu/mode[@name='host-model'][@supported='yes']")  # noqa: S314
    if found is None or found.find("model") is None:
        return None
    cpu = custom(found.findtext("model", ""), found.findtext("vendor", ""))
    return _with_features(cpu, _policies(found))


def _policies(cpu: ET.Element) -> Iterator[tuple[str, str]]:
    for item in cpu.iterfind("feature"):
        yield item.get("name", ""), "disable" if item.get("policy") in ("disable", "forbid") else "require"


def custom(model: str, vendor: str = "") -> ET.Element:
    """Return a processor of a named model, without further features."""
    cpu = ET.Element("cpu", mode="custom", match="exact")
    ET.SubElement(cpu, "model").text = model
    if vendor:
        ET.SubElement(cpu, "vendor").text = vendor
    return cpu


def _with_features(cpu: ET.Element, features: Iterable[tuple[str, str]]) -> ET.Element:
    """Add features with their policies. They replace earlier policies of the same features."""
    for name, policy in features:
        for known in cpu.findall(f"feature[@name='{name}']"):
            cpu.remove(known)
        ET.SubElement(cpu, "feature", policy=policy, name=name)
    return cpu


def definition(cpu: ET.Element) -> str:
    """Return a processor as in `HostCpu.definition`."""
    features = (f"{_SIGNS[policy]}{name}" for name, policy in _policies(cpu))
    return " ".join((cpu.findtext("model", ""), *features))


def of_definition(text: str, vendor: str = "") -> ET.Element:
    """Return the processor of a `HostCpu.definition`."""
    model, *features = text.split()
    signs = {sign: policy for policy, sign in _SIGNS.items()}
    return _with_features(custom(model, vendor), ((name[1:], signs[name[0]]) for name in features))


def _machines(capabilities: str, architectures: Collection[str]) -> set[str]:
    """Return the types of machines, without the short names that mean one of them."""
    found: set[str] = set()
    for described in ET.fromstring(capabilities).iterfind("guest/arch"):  # noqa: S314 libvirt's own
        if described.get("name") in architectures:
            found |= {machine.get("canonical") or machine.text or "" for machine in described.iterfind(".//machine")}
    return found


def _text(cpu: ET.Element) -> str:
    return ET.tostring(cpu, encoding="unicode")
