"""Definitions of all flavor extra specs and image properties that Nova documents for libvirt.

Names, values and precedence are Nova's. A definition is all that decides whether a setting is honoured or refused.
`nova_lite.virt.libvirt.domain.hardware_xml` puts the honoured settings into the domain. ``docs/reference/hardware.md``
is generated from the definitions.
"""

from __future__ import annotations

import functools
import re

from nova_lite.hardware.definition import (
    ANYTHING,
    BOOLEAN,
    CPUS,
    Definition,
    Precedence,
    honoured,
    key_pattern,
    matching,
    not_applicable,
    number,
    one_of,
    refused,
)

NO = ("no", "false", "0", "off", "n", "f")

#: Two different NUMA nodes of a guest with four vCPUs and 512 MB.
_NODES = {
    "hw:numa_nodes": "2",
    "hw:numa_cpus.0": "0",
    "hw:numa_mem.0": "128",
    "hw:numa_cpus.1": "1-3",
    "hw:numa_mem.1": "384",
}

CPU = (
    *(
        definition
        for part, specs, other_effect in (
            ("sockets", {"hw:cpu_max_sockets": "1"}, ""),
            ("cores", {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "2"}, ""),
            ("threads", {"hw:cpu_max_threads": "1"}, "the choice of topologies"),
        )
        for definition in (
            honoured(
                f"cpu_{part}",
                number(1, 65536),
                f"preferred number of {part}, used if it divides the vCPUs",
                flavor=f"hw:cpu_{part}",
                image=f"hw_cpu_{part}",
                precedence=Precedence.IMAGE,
                properties={f"hw_cpu_{part}": "2"},
            ),
            honoured(
                f"cpu_max_{part}",
                number(1, 65536),
                f"maximum number of {part}",
                flavor=f"hw:cpu_max_{part}",
                image=f"hw_cpu_max_{part}",
                old_keys=(f"hw:max_cpu_{part}",),
                precedence=Precedence.LIMIT,
                specs=specs,
                other_effect=other_effect,
            ),
        )
    ),
    honoured(
        "pmu",
        BOOLEAN,
        "whether the guest has a performance monitoring unit",
        flavor="hw:pmu",
        image="hw_pmu",
        specs={"hw:pmu": "no"},
    ),
    honoured(
        "hide_hypervisor_id",
        BOOLEAN,
        "the guest cannot see which hypervisor it runs on",
        flavor="hw:hide_hypervisor_id",
        image="img_hide_hypervisor_id",
        old_keys=("hide_hypervisor_id",),
        precedence=Precedence.EITHER,
        specs={"hw:hide_hypervisor_id": "yes"},
    ),
    honoured(
        "maxphysaddr_mode",
        one_of("emulate", "passthrough"),
        "limit of the guest's physical addresses; the host must have the trait",
        flavor="hw:maxphysaddr_mode",
        image="hw_maxphysaddr_mode",
        specs={"hw:maxphysaddr_mode": "passthrough"},
    ),
    honoured(
        "maxphysaddr_bits",
        number(32, 64),
        "bits of a physical address; needs `emulate`",
        flavor="hw:maxphysaddr_bits",
        image="hw_maxphysaddr_bits",
        specs={"hw:maxphysaddr_mode": "emulate", "hw:maxphysaddr_bits": "42"},
    ),
    honoured(
        "cpu_policy",
        one_of("shared", "dedicated", "mixed"),
        "`dedicated`: each vCPU has a CPU of the host's `[compute] cpu_dedicated_set` for itself; `mixed`: those of "
        "`hw:cpu_dedicated_mask`, or else the realtime ones; an image may not request more dedicated CPUs than its "
        "flavor's policy",
        flavor="hw:cpu_policy",
        image="hw_cpu_policy",
        precedence=Precedence.FLAVOR,
        specs={"hw:cpu_policy": "dedicated"},
    ),
    honoured(
        "cpu_thread_policy",
        one_of("prefer", "isolate", "require"),
        "choice of dedicated CPUs: `prefer`: threads of the same core if possible; `require`: only such threads; "
        "`isolate`: a core for each vCPU, whose other threads stay unused",
        flavor="hw:cpu_thread_policy",
        image="hw_cpu_thread_policy",
        specs={"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
    ),
    honoured(
        "emulator_threads_policy",
        one_of("isolate", "share"),
        "CPUs of the emulator's threads: `isolate`: one more dedicated CPU; `share`: the host's shared CPUs; default: "
        "the CPUs of the guest's vCPUs that are not realtime",
        flavor="hw:emulator_threads_policy",
        specs={"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
    ),
    honoured(
        "cpu_dedicated_mask",
        CPUS,
        "vCPUs with dedicated CPUs, or after `^` those without; needs `hw:cpu_policy=mixed`",
        flavor="hw:cpu_dedicated_mask",
        specs={"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-1"},
    ),
    honoured(
        "cpu_realtime",
        BOOLEAN,
        "vCPUs have the scheduler `fifo`, and the guest's memory is locked and not shared; needs dedicated CPUs, and "
        "either an ordinary vCPU or `hw:emulator_threads_policy`",
        flavor="hw:cpu_realtime",
        specs={"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"},
    ),
    honoured(
        "cpu_realtime_mask",
        CPUS,
        "realtime vCPUs, or after `^` the ordinary ones; default: all are realtime, if `hw:cpu_realtime` is set",
        flavor="hw:cpu_realtime_mask",
        image="hw_cpu_realtime_mask",
        precedence=Precedence.IMAGE,
        specs={
            "hw:cpu_policy": "mixed",
            "hw:cpu_realtime": "yes",
            "hw:emulator_threads_policy": "share",
            "hw:cpu_realtime_mask": "2-3",
        },
    ),
    honoured(
        "max_vcpus",
        number(1, 255),
        "vCPUs that the running guest can get by a resize; not for guests with a place in the host's CPUs or memory",
        flavor="hw:max_vcpus",
        specs={"hw:max_vcpus": "8"},
    ),
)

MEMORY = (
    honoured(
        "max_memory",
        number(1),
        "memory in MB that the running guest can get by a resize; not for guests with a place in the host's CPUs or "
        "memory",
        flavor="hw:max_memory",
        specs={"hw:max_memory": "2048"},
    ),
    honoured(
        "mem_page_size",
        matching(
            "`small`, `large`, `any`, or a size (`2MB`; KiB without a unit)",
            r"any|large|small|\d+([kKmMgGtT][iI]?)?([bB]|bit)?",
        ),
        "size of the pages of the guest's memory; `any`: large pages if there are some",
        flavor="hw:mem_page_size",
        image="hw_mem_page_size",
        precedence=Precedence.IF_FLAVOR_ALLOWS,
        specs={"hw:mem_page_size": "large"},
    ),
    honoured(
        "numa_nodes",
        number(1, 128),
        "number of NUMA nodes of the guest, each in a different cell of the host",
        flavor="hw:numa_nodes",
        image="hw_numa_nodes",
        precedence=Precedence.ONLY_ONE,
        specs={"hw:numa_nodes": "2"},
    ),
    honoured(
        "numa_cpus",
        CPUS,
        "vCPUs of the node; set CPUs and memory of all nodes or of none",
        flavor="hw:numa_cpus.{id}",
        image="hw_numa_cpus.{id}",
        precedence=Precedence.ONLY_ONE,
        specs=_NODES,
    ),
    honoured(
        "numa_mem",
        number(1),
        "memory of the node in MB",
        flavor="hw:numa_mem.{id}",
        image="hw_numa_mem.{id}",
        precedence=Precedence.ONLY_ONE,
        specs=_NODES,
    ),
    honoured(
        "pci_numa_affinity_policy",
        one_of("required", "preferred", "legacy"),
        "whether PCI devices have to be in the NUMA cells of a guest that is placed in some; `legacy`: unless the "
        "machine does not know the cell of a device",
        flavor="hw:pci_numa_affinity_policy",
        image="hw_pci_numa_affinity_policy",
        specs={"hw:pci_numa_affinity_policy": "required"},
        other_effect="the choice of the host and of its devices",
    ),
    honoured(
        "locked_memory",
        BOOLEAN,
        "the host never swaps the guest's memory out; needs `hw:mem_page_size`",
        flavor="hw:locked_memory",
        image="hw_locked_memory",
        specs={"hw:mem_page_size": "small", "hw:locked_memory": "yes"},
    ),
    honoured(
        "mem_encryption",
        BOOLEAN,
        "the processor encrypts the guest's memory; the host must have the trait of the model, and for the models of "
        "AMD a free `MEM_ENCRYPTION_CONTEXT`; needs UEFI and a `q35` machine; the server cannot be suspended or "
        "migrated live",
        flavor="hw:mem_encryption",
        image="hw_mem_encryption",
        specs={"hw:mem_encryption": "yes"},
        properties={"hw_firmware_type": "uefi", "hw_machine_type": "q35"},
    ),
    honoured(
        "mem_encryption_model",
        one_of("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"),
        "model of the encryption, default: `amd-sev`; needs `hw:mem_encryption`",
        flavor="hw:mem_encryption_model",
        image="hw_mem_encryption_model",
        specs={"hw:mem_encryption": "yes", "hw:mem_encryption_model": "amd-sev-es"},
        properties={"hw_firmware_type": "uefi", "hw_machine_type": "q35"},
    ),
    refused(
        "pmem",
        ANYTHING,
        "this cloud has no persistent memory",
        flavor="hw:pmem",
        specs={"hw:pmem": "6GB"},
    ),
)

FIRMWARE = (
    honoured(
        "machine_type",
        matching(
            "`pc`, `q35`, `virt`, one of their versions, or `microvm`",
            r"pc|q35|virt|microvm|(pc-i440fx|pc-q35|virt)-[A-Za-z0-9.+-]+",
        ),
        "emulated machine; default: `[libvirt] hw_machine_type`; guests of the architecture aarch64 have `virt`; "
        "`microvm`: on hosts without libvirt, with KVM",
        image="hw_machine_type",
        properties={"hw_machine_type": "q35"},
    ),
    honoured(
        "firmware_type",
        one_of("bios", "uefi"),
        "`uefi`: OVMF with its own variables; the host must have it",
        image="hw_firmware_type",
        properties={"hw_firmware_type": "uefi"},
    ),
    honoured(
        "secure_boot",
        one_of("disabled", "optional", "required"),
        "the firmware boots signed systems only; needs UEFI and a `q35` machine; `optional`: if the host can",
        flavor="os:secure_boot",
        image="os_secure_boot",
        specs={"os:secure_boot": "required"},
        properties={"hw_firmware_type": "uefi"},
    ),
    refused(
        "firmware_stateless",
        BOOLEAN,
        "the firmware of UEFI guests always stores its variables",
        image="hw_firmware_stateless",
        harmless=NO,
        properties={"hw_firmware_stateless": "yes"},
    ),
    honoured(
        "boot_menu",
        BOOLEAN,
        "the firmware shows a boot menu",
        flavor="hw:boot_menu",
        image="hw_boot_menu",
        precedence=Precedence.IMAGE,
        specs={"hw:boot_menu": "yes"},
    ),
    honoured(
        "time_hpet",
        BOOLEAN,
        "the guest has a high precision event timer",
        image="hw_time_hpet",
        properties={"hw_time_hpet": "yes"},
    ),
    honoured(
        "os_type",
        matching("a word, as `linux`", r"[A-Za-z0-9_.-]{1,64}"),
        "`windows`: the clock has local time, and KVM emulates Hyper-V's interface",
        image="os_type",
        properties={"os_type": "windows"},
    ),
    honoured(
        "tpm_version",
        one_of("1.2", "2.0"),
        "the guest has an emulated TPM, encrypted at rest; needs hosts with `[libvirt] swtpm_enabled`; the server "
        "cannot be rebuilt, shelved, rescued or evacuated",
        flavor="hw:tpm_version",
        image="hw_tpm_version",
        specs={"hw:tpm_version": "2.0"},
    ),
    honoured(
        "tpm_model",
        one_of("tpm-tis", "tpm-crb"),
        "interface of the TPM, default: `tpm-tis`; needs a version, and `tpm-crb` needs 2.0",
        flavor="hw:tpm_model",
        image="hw_tpm_model",
        specs={"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"},
    ),
    honoured(
        "tpm_secret_security",
        matching(
            "`deployment`, because the cloud keeps the keys of TPMs, and neither users nor hosts do", "deployment"
        ),
        "the cloud keeps the key of the TPM's state; a host gets it for a guest that starts",
        flavor="hw:tpm_secret_security",
        specs={"hw:tpm_version": "2.0", "hw:tpm_secret_security": "deployment"},
        other_effect="the host's memory, for the moment of a start",
    ),
)

DISKS = (
    honoured(
        "disk_bus",
        one_of("virtio", "scsi", "sata", "ide", "usb"),
        "bus of the guest's disks",
        image="hw_disk_bus",
        properties={"hw_disk_bus": "scsi"},
    ),
    honoured(
        "scsi_model",
        one_of("virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078"),
        "controller of a SCSI bus; default: `virtio-scsi`",
        image="hw_scsi_model",
        properties={"hw_scsi_model": "lsilogic", "hw_disk_bus": "scsi"},
    ),
    honoured(
        "cdrom_bus",
        one_of("ide", "sata", "scsi", "usb"),
        "bus of the drive of an ISO image; default: `ide`, on a `q35` machine `sata`",
        image="hw_cdrom_bus",
        properties={"hw_cdrom_bus": "scsi", "disk_format": "iso"},
    ),
    honoured(
        "virtio_packed_ring",
        BOOLEAN,
        "virtio disks and interfaces use packed rings",
        flavor="hw:virtio_packed_ring",
        image="hw_virtio_packed_ring",
        specs={"hw:virtio_packed_ring": "yes"},
    ),
    *(
        honoured(
            f"disk_{direction}_{unit}_sec{most}",
            number(1),
            f"{'bytes' if unit == 'bytes' else 'requests'} per second of "
            f"{ {'read': 'reads', 'write': 'writes', 'total': 'reads and writes'}[direction] } of each disk"
            f"{' during a burst' if most else ''}; total excludes the other two",
            flavor=f"quota:disk_{direction}_{unit}_sec{most}",
            specs=(
                {f"quota:disk_{direction}_{unit}_sec": "1000"}
                | ({f"quota:disk_{direction}_{unit}_sec_max": "2000"} if most else {})
            ),
        )
        for direction in ("read", "write", "total")
        for unit in ("bytes", "iops")
        for most in ("", "_max")
    ),
    honoured(
        "disk_size_iops_sec",
        number(1),
        "bytes of one request; a larger one counts as several",
        flavor="quota:disk_size_iops_sec",
        specs={"quota:disk_size_iops_sec": "4096", "quota:disk_total_iops_sec": "100"},
    ),
    honoured(
        "rescue_bus",
        one_of("virtio", "scsi", "sata", "ide", "usb"),
        "for a rescue image: bus of its disk, which is attached after the server's own disks",
        image="hw_rescue_bus",
        properties={"hw_rescue_bus": "usb"},
        other_effect="the domain of a rescued server",
    ),
    honoured(
        "rescue_device",
        one_of("disk", "cdrom"),
        "for a rescue image: kind of its device, which is attached after the server's own disks",
        image="hw_rescue_device",
        properties={"hw_rescue_device": "cdrom"},
        other_effect="the domain of a rescued server",
    ),
    honoured(
        "ephemeral_encryption",
        BOOLEAN,
        "the server's disks on its host are encrypted, each with a key of its own that the cloud keeps; the host must "
        "have the trait; no images and backups are made of the root disk, and no resize or rebuild changes the setting",
        flavor="hw:ephemeral_encryption",
        image="hw_ephemeral_encryption",
        specs={"hw:ephemeral_encryption": "yes"},
    ),
    honoured(
        "ephemeral_encryption_format",
        one_of("luks"),
        "format of the encrypted disks: LUKS version 1, which is the only one",
        flavor="hw:ephemeral_encryption_format",
        image="hw_ephemeral_encryption_format",
        specs={"hw:ephemeral_encryption": "yes", "hw:ephemeral_encryption_format": "luks"},
        other_effect="nothing besides `hw:ephemeral_encryption`",
    ),
    refused(
        "ephemeral_encryption_secret_uuid",
        ANYTHING,
        "images are not encrypted; disks made of them are",
        image="hw_ephemeral_encryption_secret_uuid",
        properties={"hw_ephemeral_encryption_secret_uuid": "af9a8b0e-0f5c-4b2e-a7c8-2e4b1f1d5d11"},
    ),
)

INTERFACES = (
    honoured(
        "vif_model",
        one_of("virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139", "vmxnet3"),
        "model of the interfaces",
        image="hw_vif_model",
        properties={"hw_vif_model": "e1000"},
    ),
    honoured(
        "vif_multiqueue_enabled",
        BOOLEAN,
        "virtio interfaces have a queue for each vCPU, up to 256",
        flavor="hw:vif_multiqueue_enabled",
        image="hw_vif_multiqueue_enabled",
        specs={"hw:vif_multiqueue_enabled": "yes"},
    ),
    *(
        honoured(
            f"vif_{way}_{kind}",
            number(1),
            f"{'KiB' if kind == 'burst' else f'{kind} KiB per second'} "
            f"{'to' if way == 'inbound' else 'from'} an interface"
            f"{' in one burst at the peak rate' if kind == 'burst' else ''}"
            f"{'' if kind == 'average' else '; needs the average'}",
            flavor=f"quota:vif_{way}_{kind}",
            specs={f"quota:vif_{way}_average": "1000"}
            | ({f"quota:vif_{way}_{kind}": "2000"} if kind != "average" else {}),
        )
        for way in ("inbound", "outbound")
        for kind in ("average", "peak", "burst")
    ),
)

DEVICES = (
    honoured(
        "video_model",
        one_of("vga", "cirrus", "qxl", "virtio", "bochs", "vmvga", "none"),
        "graphics card; the host must have it",
        image="hw_video_model",
        properties={"hw_video_model": "virtio"},
    ),
    honoured(
        "video_ram",
        number(1, 2048),
        "MiB of the graphics card, up to the flavor's `hw_video:ram_max_mb`, without which it is refused; `bochs`: 4 "
        "to 256",
        image="hw_video_ram",
        specs={"hw_video:ram_max_mb": "64"},
        properties={"hw_video_ram": "32"},
    ),
    honoured(
        "video_ram_max",
        number(0),
        "maximum MiB that an image may request for the graphics card",
        flavor="hw_video:ram_max_mb",
        specs={"hw_video:ram_max_mb": "64"},
        properties={"hw_video_ram": "64"},
    ),
    honoured(
        "pointer_model",
        one_of("usbtablet"),
        "a tablet, a pointer with absolute positions",
        image="hw_pointer_model",
        properties={"hw_pointer_model": "usbtablet"},
    ),
    honoured(
        "input_bus",
        one_of("usb", "virtio"),
        "a tablet and a keyboard on that bus",
        image="hw_input_bus",
        properties={"hw_input_bus": "virtio"},
    ),
    honoured(
        "rng_allowed",
        BOOLEAN,
        "whether the guest has a random number generator; default: yes",
        flavor="hw_rng:allowed",
        specs={"hw_rng:allowed": "no"},
    ),
    honoured(
        "rng_rate_bytes",
        number(0),
        "random bytes that a guest may read in a period; 0: no limit",
        flavor="hw_rng:rate_bytes",
        specs={"hw_rng:rate_bytes": "2048"},
    ),
    honoured(
        "rng_rate_period",
        number(1),
        "milliseconds of a period; default: 1000",
        flavor="hw_rng:rate_period",
        specs={"hw_rng:rate_bytes": "2048", "hw_rng:rate_period": "500"},
    ),
    honoured(
        "rng_model",
        one_of("virtio"),
        "the guest has a random number generator, like every guest whose flavor allows it",
        image="hw_rng_model",
        properties={"hw_rng_model": "virtio"},
        other_effect="nothing, since it is the default",
    ),
    honoured(
        "watchdog_action",
        one_of("disabled", "none", "pause", "poweroff", "reset"),
        "action when the guest stops feeding its watchdog",
        flavor="hw:watchdog_action",
        image="hw_watchdog_action",
        precedence=Precedence.IMAGE,
        specs={"hw:watchdog_action": "reset"},
    ),
    honoured(
        "serial_port_count",
        number(0, 4),
        "number of serial ports, at least one",
        flavor="hw:serial_port_count",
        image="hw_serial_port_count",
        precedence=Precedence.LIMIT,
        specs={"hw:serial_port_count": "2"},
    ),
    honoured(
        "qemu_guest_agent",
        BOOLEAN,
        "a channel for qemu's guest agent",
        image="hw_qemu_guest_agent",
        properties={"hw_qemu_guest_agent": "yes"},
    ),
    honoured(
        "require_quiesce",
        BOOLEAN,
        "a snapshot of the running guest fails unless its agent has frozen its file systems; needs "
        "`hw_qemu_guest_agent`",
        image="os_require_quiesce",
        properties={"os_require_quiesce": "yes", "hw_qemu_guest_agent": "yes"},
    ),
    honoured(
        "sound_model",
        one_of("sb16", "es1370", "ac97", "ich6", "ich9", "usb"),
        "sound card; not `pcspk`, for which libvirt uses an option that qemu no longer has",
        flavor="hw:sound_model",
        image="hw_sound_model",
        specs={"hw:sound_model": "ich6"},
    ),
    honoured(
        "usb_model",
        one_of("qemu-xhci", "nec-xhci", "piix3-uhci"),
        "USB controller; default: `qemu-xhci` if a device needs one",
        flavor="hw:usb_model",
        image="hw_usb_model",
        specs={"hw:usb_model": "nec-xhci"},
    ),
    refused(
        "redirected_usb_ports",
        number(0),
        "consoles in a browser do not redirect USB",
        flavor="hw:redirected_usb_ports",
        image="hw_redirected_usb_ports",
        harmless=("0",),
        specs={"hw:redirected_usb_ports": "2"},
    ),
    refused(
        "viommu_model",
        one_of("intel", "smmuv3", "virtio", "auto"),
        "guests have no IOMMU of their own",
        flavor="hw:viommu_model",
        image="hw_viommu_model",
        specs={"hw:viommu_model": "intel"},
    ),
    honoured(
        "pci_passthrough",
        matching("aliases with numbers of devices, as `gpu:1`", r"[^:,]+:[1-9]\d{0,2}(,[^:,]+:[1-9]\d{0,2})*"),
        "devices of the host for the guest alone, of kinds that `[pci] alias` defines",
        flavor="pci_passthrough:alias",
        specs={"pci_passthrough:alias": "gpu:1"},
    ),
    refused(
        "device_profile",
        ANYTHING,
        "this cloud has no accelerators",
        flavor="accel:device_profile",
        specs={"accel:device_profile": "gpu"},
    ),
)

QUOTA = (
    honoured(
        "cpu_shares",
        number(2, 262144),
        "the guest's weight against other guests when the host's CPUs are busy; hosts with cgroups version 2 accept at "
        "most 10000",
        flavor="quota:cpu_shares",
        specs={"quota:cpu_shares": "512"},
    ),
    honoured(
        "cpu_period",
        number(1000, 1000000),
        "microseconds of the period of `quota:cpu_quota`",
        flavor="quota:cpu_period",
        specs={"quota:cpu_period": "20000"},
    ),
    honoured(
        "cpu_quota",
        matching("-1 or a number of at least 1000", r"-1|[1-9]\d{3,15}"),
        "microseconds that a vCPU may run in each period; -1: no limit",
        flavor="quota:cpu_quota",
        specs={"quota:cpu_quota": "10000"},
    ),
    *(
        not_applicable(
            f"{resource}_{key}",
            "for VMware",
            number(-1) if key != "shares_level" else ANYTHING,
            flavor=f"quota:{resource}_{key}",
            specs={f"quota:{resource}_{key}": "1"},
        )
        for resource in ("cpu", "memory", "disk_io", "vif")
        for key in ("limit", "reservation", "shares_level", "shares_share")
    ),
)

_SCHEDULER = "the choice of hosts"

#: Maximum number of vGPUs of one class that a server may have, and the definitions that request them.
MOST_VGPUS = 64
VGPU_CLASSES = ("vgpus", "custom_vgpus")

PLACEMENT = (
    honoured(
        "traits",
        one_of("required", "forbidden"),
        "hosts with or without the trait (`TraitsFilter`)",
        flavor="trait:{trait}",
        image="trait:{trait}",
        specs={"trait:HW_CPU_X86_AVX2": "required"},
        properties={"trait:CUSTOM_SLOW": "forbidden"},
        other_effect=_SCHEDULER,
    ),
    refused(
        "granular_traits",
        one_of("required", "forbidden"),
        "only hosts have traits, so groups of them have no meaning",
        flavor="trait{group}:{trait}",
        specs={"trait1:HW_CPU_X86_AVX2": "required"},
    ),
    honoured(
        "vgpus",
        number(0, MOST_VGPUS),
        "vGPUs of the host; they may be of several physical GPUs",
        flavor="resources:VGPU",
        specs={"resources:VGPU": "1"},
    ),
    honoured(
        "custom_vgpus",
        number(0, MOST_VGPUS),
        "vGPUs of a type whose `[mdev_TYPE] mdev_class` is this class",
        flavor="resources:CUSTOM_{class}",
        specs={"resources:CUSTOM_BIG_VGPU": "1"},
    ),
    refused(
        "resources",
        number(0),
        "servers use the vCPUs, memory and disks of their flavor; only vGPUs are requested by their class",
        flavor="resources:{class}",
        specs={"resources:VCPU": "2"},
    ),
    refused(
        "granular_resources",
        number(0),
        "the vGPUs of a server are one group, which resources:VGPU requests",
        flavor="resources{group}:{class}",
        specs={"resources1:VGPU": "1"},
    ),
    refused(
        "group_policy",
        one_of("isolate", "none"),
        "a server has no groups of resources",
        flavor="group_policy",
        harmless=("none",),
        specs={"group_policy": "isolate"},
    ),
    honoured(
        "aggregate_instance_extra_specs",
        ANYTHING,
        "hosts of an aggregate with that metadata, if `AggregateInstanceExtraSpecsFilter` is enabled",
        flavor="aggregate_instance_extra_specs:{key}",
        specs={"aggregate_instance_extra_specs:ssd": "true"},
        other_effect=_SCHEDULER,
    ),
    honoured(
        "capabilities",
        ANYTHING,
        "hosts with that capability (`ComputeCapabilitiesFilter`)",
        flavor="capabilities:{key}",
        specs={"capabilities:cpu_arch": "aarch64"},
        other_effect=_SCHEDULER,
    ),
    *(
        honoured(
            image,
            ANYTHING,
            f"hosts with that {what} (`ImagePropertiesFilter`)",
            image=image,
            old_keys=(old,),
            properties={image: example},
            other_effect=_SCHEDULER,
        )
        for image, old, what, example in (
            ("hw_architecture", "architecture", "CPU architecture", "aarch64"),
            ("hw_vm_mode", "vm_mode", "virtual machine mode", "xen"),
            ("img_hv_type", "hypervisor_type", "hypervisor type", "vmware"),
            ("img_hv_requested_version", "hypervisor_version_requires", "hypervisor version", "<1.0"),
        )
    ),
    honoured(
        "emulation_architecture",
        one_of("x86_64", "aarch64"),
        "architecture of the guest, on hosts that have or emulate it (`TraitsFilter`); `hw_architecture` is the host's",
        image="hw_emulation_architecture",
        properties={"hw_emulation_architecture": "aarch64"},
    ),
)

SYSTEM = (
    honoured(
        "config_drive",
        one_of("mandatory", "optional"),
        "`mandatory`: the server has a config drive",
        image="img_config_drive",
        properties={"img_config_drive": "mandatory"},
        other_effect="the server's disks",
    ),
    honoured(
        "command_line",
        ANYTHING,
        "kernel command line of an image with a separate kernel",
        image="os_command_line",
        properties={"os_command_line": "quiet"},
        other_effect="the kernel's command line",
    ),
    honoured(
        "admin_user",
        ANYTHING,
        "user whose password `changePassword` sets",
        image="os_admin_user",
        properties={"os_admin_user": "debian"},
        other_effect="the action `changePassword`",
    ),
)

OTHERS = (
    not_applicable("vmware", "for VMware", flavor="vmware:{key}", specs={"vmware:hw_version": "vmx-14"}),
    *(
        not_applicable(name, why, image=name, properties={name: "1"})
        for name, why in (
            ("hw_auto_disk_config", "for XenServer"),
            ("hw_device_id", "for XenServer"),
            ("hw_disk_type", "for VMware"),
            ("hw_floppy_bus", "servers have no floppy disks"),
            ("hw_ipxe_boot", "for XenServer"),
            ("img_bdm_v2", "about volumes, not hardware"),
            ("img_bittorrent", "for XenServer"),
            ("img_block_device_mapping", "about volumes, not hardware"),
            ("img_cache_in_nova", "for XenServer"),
            ("img_compression_level", "for XenServer"),
            ("img_linked_clone", "for VMware"),
            ("img_mappings", "about volumes, not hardware"),
            ("img_owner_id", "for the image service"),
            ("img_root_device_name", "guests name their disks"),
            ("img_signature", "the image service verifies signatures"),
            ("img_signature_certificate_uuid", "the image service verifies signatures"),
            ("img_signature_hash_method", "the image service verifies signatures"),
            ("img_signature_key_type", "the image service verifies signatures"),
            ("img_use_agent", "for XenServer"),
            ("img_version", "for the image service"),
            ("os_distro", "for people; other properties describe its requirements"),
            ("os_skip_agent_inject_files_at_boot", "for XenServer"),
            ("os_skip_agent_inject_ssh", "for XenServer"),
        )
    ),
)

DEFINITIONS: tuple[Definition, ...] = (
    *CPU,
    *MEMORY,
    *FIRMWARE,
    *DISKS,
    *INTERFACES,
    *DEVICES,
    *QUOTA,
    *PLACEMENT,
    *SYSTEM,
    *OTHERS,
)

#: Namespaces of extra specs. An unknown key of these is refused; users may choose keys of other namespaces.
RESERVED_NAMESPACES = frozenset(
    namespace
    for namespace, colon, _ in (definition.flavor.partition(":") for definition in DEFINITIONS)
    if colon and "{" not in namespace
)
#: Prefix of image properties. An unknown property with this prefix is refused.
RESERVED_PREFIX = "hw_"

_GROUPED = re.compile(rf"(trait|resources){key_pattern('{group}')}:.*", re.ASCII)


class _Index:
    """Definitions by their keys."""

    def __init__(self, keys: list[tuple[str, Definition]]) -> None:
        self._plain = {key: definition for key, definition in keys if "{" not in key}
        self._grouped = [(key, definition) for key, definition in keys if "{" in key]

    def find(self, key: str) -> Definition | None:
        definition = self._plain.get(key)
        if definition is not None or not (":" in key or "." in key):
            return definition
        return next((definition for pattern, definition in self._patterns if pattern.fullmatch(key)), None)

    @functools.cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], Definition]]:
        """Patterns of keys with parts in braces, compiled when first needed."""
        return [(re.compile(key_pattern(key), re.ASCII), definition) for key, definition in self._grouped]


_SPEC_KEYS = [(definition.flavor, definition) for definition in DEFINITIONS if definition.flavor]
_PROPERTY_KEYS = [(definition.image, definition) for definition in DEFINITIONS if definition.image]
for _definition in DEFINITIONS:
    for _key in _definition.old_keys:
        _is_spec = ":" in _key or _key == "hide_hypervisor_id"
        (_SPEC_KEYS if _is_spec else _PROPERTY_KEYS).append((_key, _definition))

_SPECS = _Index(_SPEC_KEYS)
_PROPERTIES = _Index(_PROPERTY_KEYS)


def find_extra_spec(key: str) -> Definition | None:
    """Return the definition of an extra spec, or None if there is none."""
    return _SPECS.find(key)


def find_image_property(key: str) -> Definition | None:
    """Return the definition of an image property, or None if there is none."""
    return _PROPERTIES.find(key)


def is_reserved(key: str) -> bool:
    """Return whether an extra spec with this key is refused if it has no definition."""
    namespace, colon, _ = key.partition(":")
    return bool(colon) and (namespace in RESERVED_NAMESPACES or _GROUPED.fullmatch(key) is not None)
