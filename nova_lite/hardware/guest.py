"""Hardware of a guest, as drivers build it."""

from __future__ import annotations

import msgspec

from nova_lite.hardware.numa import NUMARequest
from nova_lite.hardware.topology import Topology

#: Architectures of guests. Hosts have the first, and can emulate the second.
X86_64, AARCH64 = "x86_64", "aarch64"

#: Machine of guests of the architecture aarch64.
VIRT = "virt"

VIRTIO, SCSI, SATA, IDE, USB = "virtio", "scsi", "sata", "ide", "usb"
OPTIONAL, REQUIRED, DISABLED = "optional", "required", "disabled"

#: First letters of the guest's names of disks, by their bus.
DEVICE_PREFIX = {VIRTIO: "vd", SCSI: "sd", SATA: "sd", USB: "sd", IDE: "hd"}

#: Number of disks on the IDE bus of a machine.
IDE_PLACES = 4

RNG_PERIOD = 1000

TPM_2, TPM_TIS, TPM_CRB = "2.0", "tpm-tis", "tpm-crb"


#: Models of the encryption of memory.
SEV, SEV_ES, SEV_SNP, TDX = "amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"


class Tpm(msgspec.Struct, frozen=True):
    """Emulated TPM of a guest: ``version`` 1.2 or 2.0, ``model`` of its interface."""

    version: str
    model: str


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """Hardware of a guest. None or an empty value leaves the choice to the driver.

    ``topology``: of the vCPUs. ``architecture`` None: that of the host. ``serial_ports``: at least one. ``cpu_tune``:
    shares, period, quota. ``disk_tune``: by libvirt's names in ``iotune``. ``inbound``, ``outbound``: average, peak and
    burst of each interface in KiB (per second). ``queues``: of each interface. ``rng_bytes``: 0 is no limit. ``cdrom``:
    the root disk is an ISO image. ``traits``: traits that the host must have (``required``) or must not have
    (``forbidden``), including the traits that follow from the other fields. ``numa``: the request for CPUs and memory
    of the host. ``tpm`` None: the guest has no TPM. ``max_vcpus``, ``max_memory_mb``: the size that the guest can get
    while it runs; None: its own. ``encrypted_disks``: its disks on the host are. ``mem_encryption``:
    model of the encryption of its memory; None: it is plain.
    """

    topology: Topology
    architecture: str | None = None
    machine_type: str | None = None
    uefi: bool = False
    secure_boot: str = DISABLED
    boot_menu: bool = False
    hpet: bool = False
    windows: bool = False
    pmu: bool | None = None
    hidden: bool = False
    maxphysaddr_mode: str | None = None
    maxphysaddr_bits: int | None = None
    disk_bus: str = VIRTIO
    scsi_model: str = "virtio-scsi"
    cdrom: bool = False
    cdrom_bus: str | None = None
    packed_ring: bool = False
    vif_model: str = VIRTIO
    queues: int = 1
    video_model: str | None = None
    video_ram_mb: int | None = None
    tablet: str | None = None
    keyboard: str | None = None
    rng: bool = True
    rng_bytes: int = 0
    rng_period: int = RNG_PERIOD
    watchdog: str | None = None
    serial_ports: int = 1
    agent: bool = False
    quiesce: bool = False
    sound_model: str | None = None
    usb_model: str | None = None
    cpu_tune: dict[str, int] = {}
    disk_tune: dict[str, int] = {}
    inbound: dict[str, int] = {}
    outbound: dict[str, int] = {}
    traits: dict[str, str] = {}
    numa: NUMARequest | None = None
    tpm: Tpm | None = None
    encrypted_disks: bool = False
    mem_encryption: str | None = None
    max_vcpus: int | None = None
    max_memory_mb: int | None = None

    @property
    def is_arm(self) -> bool:
        return self.architecture == AARCH64

    @property
    def needs_usb(self) -> bool:
        """True if a device of the guest is on a USB bus."""
        return bool(self.usb_model) or USB in (self.disk_bus, self.cdrom_bus, self.tablet, self.sound_model)


#: Hardware of a guest whose flavor and image have no settings. Its vCPUs are to be replaced.
DEFAULT = Hardware(topology=Topology(1))


class RescueDisk(msgspec.Struct, frozen=True):
    """Disk of a rescued server that has the rescue image.

    ``stable``: the server's own disks keep their places before it. ``bus`` None: the bus of CD-ROM drives in the
    server's machine.
    """

    stable: bool
    bus: str | None
    cdrom: bool
