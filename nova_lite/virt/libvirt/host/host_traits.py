"""The traits of this host: hardware that its libvirt and qemu can give to guests."""

from __future__ import annotations

import glob
import logging
import xml.etree.ElementTree as ET
from collections.abc import Iterable

from nova_lite.hardware import continuing, guest, mem_encryption, traits
from nova_lite.objects import NUMACell, PCIDevice
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.host.cpu_model import CUSTOM, PASSTHROUGH, CpuModel
from nova_lite.virt.libvirt.host.guest_cpus import GuestCpus

LOG = logging.getLogger(__name__)

#: Machine types whose capabilities are queried. Each has features that the other lacks.
MACHINES = ("pc", "q35")

#: Models of the encryption of memory by libvirt's types, which `sev` alone reports in another way, too.
_LAUNCH_TYPES = {"sev-snp": guest.SEV_SNP, "tdx": guest.TDX}

#: Descriptions by which libvirt finds the daemon of virtiofs.
VIRTIOFSD = "/usr/share/qemu/vhost-user/*virtiofsd*.json"


def domain_traits(capabilities: Iterable[str]) -> set[str]:
    """Return the traits of devices and firmware, from libvirt's domain capabilities of each machine type."""
    found = {*traits.ALWAYS, traits.MULTIATTACH, traits.REALMS, *traits.DISK_ENCRYPTION}
    for text in capabilities:
        described = ET.fromstring(text)  # noqa: S314 libvirt's own
        models = _values(described, "devices/video/enum[@name='modelType']")
        found |= {traits.of_video(model) for model in models if model in traits.VIDEO_MODELS}
        buses = _values(described, "devices/disk/enum[@name='bus']")
        found |= {traits.of_bus(bus) for bus in buses if bus in guest.DEVICE_PREFIX}
        if has_uefi(described):
            found.add(traits.UEFI)
            if "yes" in _values(described, "os/loader/enum[@name='secure']"):
                found.add(traits.SECURE_BOOT)
    return found


def has_uefi(described: ET.Element) -> bool:
    return "efi" in _values(described, "os/enum[@name='firmware']")


def has_spice(capabilities: Iterable[str]) -> bool:
    """Check whether guests can have a SPICE server and its graphics card."""
    described = [ET.fromstring(text) for text in capabilities]  # noqa: S314 libvirt's own
    return all(
        "spice" in _values(domain, "devices/graphics/enum[@name='type']")
        and "qxl" in _values(domain, "devices/video/enum[@name='modelType']")
        for domain in described
    )


def has_virtiofs(capabilities: Iterable[str], daemons: str = VIRTIOFSD) -> bool:
    """Check whether guests can mount directories of this host."""
    described = [ET.fromstring(text) for text in capabilities]  # noqa: S314 libvirt's own
    types = [_values(domain, "devices/filesystem/enum[@name='driverType']") for domain in described]
    return all("virtiofs" in known for known in types) and bool(glob.glob(daemons))


def tpm_traits(capabilities: Iterable[str]) -> set[str]:
    """Return the traits of TPMs that libvirt emulates by swtpm. Empty if it cannot."""
    found = set()
    for text in capabilities:
        described = ET.fromstring(text)  # noqa: S314 libvirt's own
        if "emulator" not in _values(described, "devices/tpm/enum[@name='backendModel']"):
            continue
        for name, known in (("backendVersion", traits.TPM_VERSIONS), ("model", traits.TPM_MODELS)):
            values = _values(described, f"devices/tpm/enum[@name='{name}']")
            found |= {known[value] for value in values if value in known}
    return found | {traits.TPM_KEYS} if found else found


def mem_encryption_traits(capabilities: Iterable[str]) -> set[str]:
    """Return the traits of the models by which the processor encrypts guests' memory."""
    found = set()
    for text in capabilities:
        features = ET.fromstring(text).find("features")  # noqa: S314 libvirt's own
        if features is None:
            continue
        types = _values(features, "launchSecurity/enum[@name='sectype']")
        if features.find("sev[@supported='yes']") is not None:
            found.add(traits.MEM_ENCRYPTIONS[guest.SEV])
        if int(features.findtext("sev/maxESGuests", "0")):
            found.add(traits.MEM_ENCRYPTIONS[guest.SEV_ES])
        found |= {traits.MEM_ENCRYPTIONS[model] for name, model in _LAUNCH_TYPES.items() if name in types}
    return found


def mem_encryption_contexts(capabilities: str) -> list[PCIDevice]:
    """Return the places of the processor for keys of encrypted memory."""
    described = ET.fromstring(capabilities)  # noqa: S314 libvirt's own
    counts = {"sev": "maxGuests", "sev-es": "maxESGuests"}
    return mem_encryption.contexts(
        (pool, int(described.findtext(f"features/sev/{name}", "0"))) for pool, name in counts.items()
    )


def core_traits(cells: Iterable[NUMACell]) -> set[str]:
    """Return the trait of a host whose cores have several threads, if they do."""
    return {traits.HYPERTHREADING} if any(cell.siblings for cell in cells) else set()


def _values(described: ET.Element, path: str) -> list[str]:
    return [element.text or "" for element in described.iterfind(f"{path}/value")]


def cpu_traits(cpus: GuestCpus, model: CpuModel) -> set[str]:
    """Return the traits of the CPU that new guests see. If libvirt cannot expand the model: none."""
    try:
        if model.mode == CUSTOM:
            found = cpus.features(ET.tostring(model.whole(), encoding="unicode"))
        else:
            found = frozenset() if cpus.host is None else continuing.names(cpus.host.features)
    except LibvirtFailure as error:
        LOG.warning("The features of guests' CPUs are unknown, so no trait names them: %s", error.message)
        return set()
    disabled = {name for name, policy in model.flags.items() if policy == "disable"}
    return traits.of_features((found | model.flags.keys()) - disabled) | _of_addresses(model)


def _of_addresses(model: CpuModel) -> set[str]:
    return {traits.ADDRESSES["passthrough"]} if model.mode == PASSTHROUGH else set()
