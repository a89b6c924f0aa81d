"""The table: a row for each flavor extra spec and image property that Nova documents for libvirt.

Names, values and precedence are Nova's. A row is checked, honoured or refused by its entry here alone; what the
honoured ones make of the domain is in `nova_lite.virt.libvirt.domain.hardware_xml`. It is the source of
``docs/reference/hardware.md``.
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
    elsewhere,
    honoured,
    key_pattern,
    matching,
    number,
    one_of,
    refused,
)

NO = ("no", "false", "0", "off", "n", "f")

#: Two unlike NUMA nodes, of a guest with four vCPUs and 512 MB.
_NODES = {
    "hw:numa_nodes": "2",
    "hw:numa_cpus.0": "0",
    "hw:numa_mem.0": "128",
    "hw:numa_cpus.1": "1-3",
    "hw:numa_mem.1": "384",
}
_REALTIME = "no host here sets vCPUs apart for realtime"

CPU = (
    *(
        row
        for part, specs, changes in (
            ("sockets", {"hw:cpu_max_sockets": "1"}, ""),
            ("cores", {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "2"}, ""),
            ("threads", {"hw:cpu_max_threads": "1"}, "which topologies there are to choose from"),
        )
        for row in (
            honoured(
                f"cpu_{part}",
                number(1, 65536),
                f"how many {part} the guest's CPUs are shown as, if the vCPUs can be divided so",
                flavor=f"hw:cpu_{part}",
                image=f"hw_cpu_{part}",
                wins=Precedence.IMAGE,
                properties={f"hw_cpu_{part}": "2"},
            ),
            honoured(
                f"cpu_max_{part}",
                number(1, 65536),
                f"at most so many {part}; an image may not go above its flavor",
                flavor=f"hw:cpu_max_{part}",
                image=f"hw_cpu_max_{part}",
                older=(f"hw:max_cpu_{part}",),
                wins=Precedence.LIMIT,
                specs=specs,
                changes=changes,
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
        "the guest is not told what it runs on",
        flavor="hw:hide_hypervisor_id",
        image="img_hide_hypervisor_id",
        older=("hide_hypervisor_id",),
        wins=Precedence.EITHER,
        specs={"hw:hide_hypervisor_id": "yes"},
    ),
    honoured(
        "maxphysaddr_mode",
        one_of("emulate", "passthrough"),
        "how the guest's physical addresses are bounded; the host has to have the trait for it",
        flavor="hw:maxphysaddr_mode",
        image="hw_maxphysaddr_mode",
        specs={"hw:maxphysaddr_mode": "passthrough"},
    ),
    honoured(
        "maxphysaddr_bits",
        number(32, 64),
        "bits of a physical address, with `emulate`",
        flavor="hw:maxphysaddr_bits",
        image="hw_maxphysaddr_bits",
        specs={"hw:maxphysaddr_mode": "emulate", "hw:maxphysaddr_bits": "42"},
    ),
    honoured(
        "cpu_policy",
        one_of("shared", "dedicated"),
        "`dedicated`: each vCPU has a CPU of its host's `[compute] cpu_dedicated_set` for itself; an image may not ask "
        "for that where its flavor says `shared`",
        flavor="hw:cpu_policy",
        image="hw_cpu_policy",
        wins=Precedence.FLAVOR,
        specs={"hw:cpu_policy": "dedicated"},
    ),
    honoured(
        "cpu_thread_policy",
        one_of("prefer", "isolate", "require"),
        "of dedicated CPUs: `prefer`: threads of common cores where there are; `require`: only such; `isolate`: a core "
        "for each vCPU, whose other threads nobody gets",
        flavor="hw:cpu_thread_policy",
        image="hw_cpu_thread_policy",
        specs={"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
    ),
    honoured(
        "emulator_threads_policy",
        one_of("isolate", "share"),
        "where the threads of the guest's emulator run: `isolate`: on one more dedicated CPU, `share`: on the host's "
        "shared CPUs; else on the CPUs of the guest's vCPUs",
        flavor="hw:emulator_threads_policy",
        specs={"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
    ),
    refused(
        "cpu_dedicated_mask",
        CPUS,
        "a guest has CPUs of its own for all of its vCPUs, or for none",
        flavor="hw:cpu_dedicated_mask",
        kept=True,
        specs={"hw:cpu_dedicated_mask": "0-1"},
    ),
    refused(
        "cpu_realtime",
        BOOLEAN,
        _REALTIME,
        flavor="hw:cpu_realtime",
        harmless=NO,
        kept=True,
        specs={"hw:cpu_realtime": "yes"},
    ),
    refused(
        "cpu_realtime_mask",
        CPUS,
        _REALTIME,
        flavor="hw:cpu_realtime_mask",
        image="hw_cpu_realtime_mask",
        kept=True,
        specs={"hw:cpu_realtime_mask": "^0"},
    ),
)

MEMORY = (
    honoured(
        "mem_page_size",
        matching(
            "`small`, `large`, `any`, or a size (`2MB`; KiB without a unit)",
            r"any|large|small|\d+([kKmMgGtT][iI]?)?([bB]|bit)?",
        ),
        "what pages the guest's memory is of; `any` takes large ones where there are",
        flavor="hw:mem_page_size",
        image="hw_mem_page_size",
        wins=Precedence.OPEN,
        specs={"hw:mem_page_size": "large"},
    ),
    honoured(
        "numa_nodes",
        number(1, 128),
        "how many NUMA nodes the guest has, each in a cell of its host of its own",
        flavor="hw:numa_nodes",
        image="hw_numa_nodes",
        wins=Precedence.ONE,
        specs={"hw:numa_nodes": "2"},
    ),
    honoured(
        "numa_cpus",
        CPUS,
        "which vCPUs the node has; for all nodes, with their memory, or for none",
        flavor="hw:numa_cpus.{id}",
        image="hw_numa_cpus.{id}",
        wins=Precedence.ONE,
        specs=_NODES,
    ),
    honoured(
        "numa_mem",
        number(1),
        "how much memory the node has (MB)",
        flavor="hw:numa_mem.{id}",
        image="hw_numa_mem.{id}",
        wins=Precedence.ONE,
        specs=_NODES,
    ),
    refused(
        "pci_numa_affinity_policy",
        one_of("required", "preferred", "legacy", "socket"),
        "no PCI devices are passed through here",
        flavor="hw:pci_numa_affinity_policy",
        image="hw_pci_numa_affinity_policy",
        harmless=("legacy", "preferred"),
        specs={"hw:pci_numa_affinity_policy": "required"},
    ),
    refused(
        "locked_memory",
        BOOLEAN,
        "guests' memory is ordinary memory of the host, and is not locked",
        flavor="hw:locked_memory",
        image="hw_locked_memory",
        harmless=NO,
        specs={"hw:locked_memory": "yes"},
    ),
    refused(
        "mem_encryption",
        BOOLEAN,
        "no host here encrypts guests' memory",
        flavor="hw:mem_encryption",
        image="hw_mem_encryption",
        harmless=NO,
        specs={"hw:mem_encryption": "yes"},
    ),
    refused(
        "mem_encryption_model",
        ANYTHING,
        "no host here encrypts guests' memory",
        flavor="hw:mem_encryption_model",
        image="hw_mem_encryption_model",
        specs={"hw:mem_encryption_model": "amd-sev"},
    ),
    refused(
        "pmem",
        ANYTHING,
        "no host here has persistent memory to give",
        flavor="hw:pmem",
        specs={"hw:pmem": "6GB"},
    ),
)

FIRMWARE = (
    honoured(
        "machine_type",
        matching("`pc`, `q35`, or one of their versions", r"pc|q35|pc-(i440fx|q35)-[A-Za-z0-9.+-]+"),
        "the machine that is emulated; else `[libvirt] hw_machine_type`",
        image="hw_machine_type",
        properties={"hw_machine_type": "q35"},
    ),
    honoured(
        "firmware_type",
        one_of("bios", "uefi"),
        "`uefi`: OVMF, with variables of the guest's own; the host has to have it",
        image="hw_firmware_type",
        properties={"hw_firmware_type": "uefi"},
    ),
    honoured(
        "secure_boot",
        one_of("disabled", "optional", "required"),
        "whether the firmware starts signed systems only, with UEFI on a `q35` machine; `optional`: where the host can",
        flavor="os:secure_boot",
        image="os_secure_boot",
        specs={"os:secure_boot": "required"},
        properties={"hw_firmware_type": "uefi"},
    ),
    refused(
        "firmware_stateless",
        BOOLEAN,
        "the firmware of UEFI guests keeps its variables here",
        image="hw_firmware_stateless",
        harmless=NO,
        properties={"hw_firmware_stateless": "yes"},
    ),
    honoured(
        "boot_menu",
        BOOLEAN,
        "the firmware shows a menu of what to boot",
        flavor="hw:boot_menu",
        image="hw_boot_menu",
        wins=Precedence.IMAGE,
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
        "`windows`: the clock is in local time, and KVM speaks Hyper-V's interface",
        image="os_type",
        properties={"os_type": "windows"},
    ),
    *(
        refused(
            f"tpm_{name}",
            values,
            "no host here emulates a TPM",
            flavor=f"hw:tpm_{name}",
            image=f"hw_tpm_{name}" if name != "secret_security" else "",
            specs={f"hw:tpm_{name}": example},
        )
        for name, values, example in (
            ("version", one_of("1.2", "2.0"), "2.0"),
            ("model", one_of("tpm-tis", "tpm-crb"), "tpm-crb"),
            ("secret_security", one_of("user", "host", "deployment"), "host"),
        )
    ),
)

DISKS = (
    honoured(
        "disk_bus",
        one_of("virtio", "scsi", "sata", "ide", "usb"),
        "what the guest's disks are attached to",
        image="hw_disk_bus",
        properties={"hw_disk_bus": "scsi"},
    ),
    honoured(
        "scsi_model",
        one_of("virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078"),
        "the controller of disks on a SCSI bus; else `virtio-scsi`",
        image="hw_scsi_model",
        properties={"hw_scsi_model": "lsilogic", "hw_disk_bus": "scsi"},
    ),
    honoured(
        "cdrom_bus",
        one_of("ide", "sata", "scsi", "usb"),
        "what the drive of an ISO image is attached to; else `ide`, or `sata` of a `q35` machine",
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
            f"{'bytes' if unit == 'bytes' else 'requests'} per second that each disk may "
            f"{ {'read': 'be read', 'write': 'be written', 'total': 'be read and written'}[direction] }"
            f"{' for an instant' if most else ''}; total goes with neither of the two others",
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
        "bytes of a request; a bigger one counts as several",
        flavor="quota:disk_size_iops_sec",
        specs={"quota:disk_size_iops_sec": "4096", "quota:disk_total_iops_sec": "100"},
    ),
    honoured(
        "rescue_bus",
        one_of("virtio", "scsi", "sata", "ide", "usb"),
        "of an image that a server is rescued with: what its disk is attached to, behind the server's own disks, which "
        "keep their places",
        image="hw_rescue_bus",
        properties={"hw_rescue_bus": "usb"},
        changes="the domain of a server that is rescued",
    ),
    honoured(
        "rescue_device",
        one_of("disk", "cdrom"),
        "of an image that a server is rescued with: as what it is attached, behind the server's own disks, which keep "
        "their places",
        image="hw_rescue_device",
        properties={"hw_rescue_device": "cdrom"},
        changes="the domain of a server that is rescued",
    ),
    *(
        refused(
            f"ephemeral_encryption{part}",
            values,
            "disks are not encrypted here",
            flavor=f"hw:ephemeral_encryption{part}" if flavor else "",
            image=f"hw_ephemeral_encryption{part}",
            harmless=harmless,
            properties={f"hw_ephemeral_encryption{part}": example},
        )
        for part, values, flavor, harmless, example in (
            ("", BOOLEAN, True, NO, "yes"),
            ("_format", one_of("luks", "plain"), True, (), "luks"),
            ("_secret_uuid", ANYTHING, False, (), "af9a8b0e-0f5c-4b2e-a7c8-2e4b1f1d5d11"),
        )
    ),
)

INTERFACES = (
    honoured(
        "vif_model",
        one_of("virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139", "vmxnet3"),
        "the interfaces' hardware",
        image="hw_vif_model",
        properties={"hw_vif_model": "e1000"},
    ),
    honoured(
        "vif_multiqueue_enabled",
        BOOLEAN,
        "virtio interfaces have a queue for each vCPU, at most 256",
        flavor="hw:vif_multiqueue_enabled",
        image="hw_vif_multiqueue_enabled",
        specs={"hw:vif_multiqueue_enabled": "yes"},
    ),
    *(
        honoured(
            f"vif_{way}_{kind}",
            number(1),
            f"{ {'average': 'KiB per second that', 'peak': 'KiB per second that at most', 'burst': 'KiB that'}[kind] } "
            f"{'come to' if way == 'inbound' else 'leave'} an interface"
            f"{'' if kind == 'average' else ', beside the average'}"
            f"{' in one burst at the peak' if kind == 'burst' else ''}",
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
        "the graphics card; the host has to have it",
        image="hw_video_model",
        properties={"hw_video_model": "virtio"},
    ),
    honoured(
        "video_ram",
        number(1, 65536),
        "MiB of the graphics card, at most what the flavor's `hw_video:ram_max_mb` allows, without which none may be "
        "asked for",
        image="hw_video_ram",
        specs={"hw_video:ram_max_mb": "64"},
        properties={"hw_video_ram": "32"},
    ),
    honoured(
        "video_ram_max",
        number(0),
        "MiB that an image may ask for its graphics card",
        flavor="hw_video:ram_max_mb",
        specs={"hw_video:ram_max_mb": "64"},
        properties={"hw_video_ram": "64"},
    ),
    honoured(
        "pointer_model",
        one_of("usbtablet"),
        "a pointer that knows where it is on the screen",
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
        "whether the guest has a source of random numbers, as it has else",
        flavor="hw_rng:allowed",
        specs={"hw_rng:allowed": "no"},
    ),
    honoured(
        "rng_rate_bytes",
        number(0),
        "how much of it a guest may take in a period; 0: as much as there is",
        flavor="hw_rng:rate_bytes",
        specs={"hw_rng:rate_bytes": "2048"},
    ),
    honoured(
        "rng_rate_period",
        number(1),
        "milliseconds of a period; else 1000",
        flavor="hw_rng:rate_period",
        specs={"hw_rng:rate_bytes": "2048", "hw_rng:rate_period": "500"},
    ),
    honoured(
        "rng_model",
        one_of("virtio"),
        "the guest has a source of random numbers, as every guest whose flavor allows it",
        image="hw_rng_model",
        properties={"hw_rng_model": "virtio"},
        changes="nothing that is not so by itself",
    ),
    honoured(
        "watchdog_action",
        one_of("disabled", "none", "pause", "poweroff", "reset"),
        "what becomes of a guest whose watchdog is not fed any more",
        flavor="hw:watchdog_action",
        image="hw_watchdog_action",
        wins=Precedence.IMAGE,
        specs={"hw:watchdog_action": "reset"},
    ),
    honoured(
        "serial_port_count",
        number(0, 4),
        "serial ports, at least one; an image may not have more than its flavor",
        flavor="hw:serial_port_count",
        image="hw_serial_port_count",
        wins=Precedence.LIMIT,
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
        "a snapshot of the running guest fails unless its agent has frozen its file systems; goes with "
        "`hw_qemu_guest_agent`",
        image="os_require_quiesce",
        properties={"os_require_quiesce": "yes", "hw_qemu_guest_agent": "yes"},
    ),
    honoured(
        "sound_model",
        one_of("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb"),
        "the sound card",
        flavor="hw:sound_model",
        image="hw_sound_model",
        specs={"hw:sound_model": "ich6"},
    ),
    honoured(
        "usb_model",
        one_of("qemu-xhci", "nec-xhci", "piix3-uhci"),
        "the USB controller; else there is one where something needs it, `qemu-xhci`",
        flavor="hw:usb_model",
        image="hw_usb_model",
        specs={"hw:usb_model": "nec-xhci"},
    ),
    refused(
        "redirected_usb_ports",
        number(0),
        "consoles here are VNC, which redirects no USB",
        flavor="hw:redirected_usb_ports",
        image="hw_redirected_usb_ports",
        harmless=("0",),
        specs={"hw:redirected_usb_ports": "2"},
    ),
    refused(
        "viommu_model",
        one_of("intel", "smmuv3", "virtio", "auto"),
        "no PCI devices are passed through here, so that there is nothing to guard",
        flavor="hw:viommu_model",
        image="hw_viommu_model",
        specs={"hw:viommu_model": "intel"},
    ),
    refused(
        "pci_passthrough",
        matching("aliases, as `gpu:1`", r"[^:,]+(:\d+)?(,[^:,]+(:\d+)?)*"),
        "no PCI devices are passed through here",
        flavor="pci_passthrough:alias",
        specs={"pci_passthrough:alias": "gpu:1"},
    ),
    refused(
        "device_profile",
        ANYTHING,
        "there are no accelerators here",
        flavor="accel:device_profile",
        specs={"accel:device_profile": "gpu"},
    ),
)

QUOTA = (
    honoured(
        "cpu_shares",
        number(2, 262144),
        "the guest's weight against other guests, where the host's CPUs do not suffice; hosts with cgroups of "
        "version 2 take at most 10000",
        flavor="quota:cpu_shares",
        specs={"quota:cpu_shares": "512"},
    ),
    honoured(
        "cpu_period",
        number(1000, 1000000),
        "microseconds of the period that `quota:cpu_quota` is of",
        flavor="quota:cpu_period",
        specs={"quota:cpu_period": "20000"},
    ),
    honoured(
        "cpu_quota",
        matching("-1 or microseconds from 1000", r"-1|[1-9]\d{3,15}"),
        "microseconds that a vCPU may run in each period; -1: all of it",
        flavor="quota:cpu_quota",
        specs={"quota:cpu_quota": "10000"},
    ),
    *(
        elsewhere(
            f"{resource}_{key}",
            "VMware's",
            number(-1) if key != "shares_level" else ANYTHING,
            flavor=f"quota:{resource}_{key}",
            specs={f"quota:{resource}_{key}": "1"},
        )
        for resource in ("cpu", "memory", "disk_io", "vif")
        for key in ("limit", "reservation", "shares_level", "shares_share")
    ),
)

_SCHEDULER = "which hosts there are to choose from"

PLACEMENT = (
    honoured(
        "traits",
        one_of("required", "forbidden"),
        "hosts that have the trait, or have it not (`TraitsFilter`)",
        flavor="trait:{trait}",
        image="trait:{trait}",
        specs={"trait:HW_CPU_X86_AVX2": "required"},
        properties={"trait:CUSTOM_SLOW": "forbidden"},
        changes=_SCHEDULER,
    ),
    refused(
        "granular_traits",
        one_of("required", "forbidden"),
        "a host is one provider of resources, so that groups of them say nothing",
        flavor="trait{group}:{trait}",
        specs={"trait1:HW_CPU_X86_AVX2": "required"},
    ),
    refused(
        "resources",
        number(0),
        "what a server takes is its flavor's vCPUs, memory and disks; there is no placement service",
        flavor="resources:{class}",
        specs={"resources:CUSTOM_LICENCE": "1"},
    ),
    refused(
        "granular_resources",
        number(0),
        "what a server takes is its flavor's vCPUs, memory and disks; there is no placement service",
        flavor="resources{group}:{class}",
        specs={"resources1:VGPU": "1"},
    ),
    refused(
        "group_policy",
        one_of("isolate", "none"),
        "a host is one provider of resources, so that groups of them say nothing",
        flavor="group_policy",
        harmless=("none",),
        specs={"group_policy": "isolate"},
    ),
    honoured(
        "aggregate_instance_extra_specs",
        ANYTHING,
        "hosts of an aggregate with that metadata (`AggregateInstanceExtraSpecsFilter`, where it is enabled)",
        flavor="aggregate_instance_extra_specs:{key}",
        specs={"aggregate_instance_extra_specs:ssd": "true"},
        changes=_SCHEDULER,
    ),
    honoured(
        "capabilities",
        ANYTHING,
        "hosts with that capability (`ComputeCapabilitiesFilter`)",
        flavor="capabilities:{key}",
        specs={"capabilities:cpu_arch": "aarch64"},
        changes=_SCHEDULER,
    ),
    *(
        honoured(
            image,
            ANYTHING,
            f"hosts of that {what} (`ImagePropertiesFilter`)",
            image=image,
            older=(old,),
            properties={image: example},
            changes=_SCHEDULER,
        )
        for image, old, what, example in (
            ("hw_architecture", "architecture", "CPU architecture", "aarch64"),
            ("hw_vm_mode", "vm_mode", "mode of virtual machines", "xen"),
            ("img_hv_type", "hypervisor_type", "hypervisor type", "vmware"),
            ("img_hv_requested_version", "hypervisor_version_requires", "hypervisor version", "<1.0"),
        )
    ),
    refused(
        "emulation_architecture",
        one_of("x86_64", "aarch64", "ppc64le", "mips64el", "s390x", "i686"),
        "guests have their host's architecture",
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
        changes="the server's disks",
    ),
    honoured(
        "command_line",
        ANYTHING,
        "words for the kernel of an image that has its kernel beside it",
        image="os_command_line",
        properties={"os_command_line": "quiet"},
        changes="the kernel's command line",
    ),
    honoured(
        "admin_user",
        ANYTHING,
        "whose password `changePassword` sets",
        image="os_admin_user",
        properties={"os_admin_user": "debian"},
        changes="the action `changePassword`",
    ),
)

OTHERS = (
    elsewhere("vmware", "VMware's", flavor="vmware:{key}", specs={"vmware:hw_version": "vmx-14"}),
    *(
        elsewhere(name, why, image=name, properties={name: "1"})
        for name, why in (
            ("hw_auto_disk_config", "XenServer's"),
            ("hw_device_id", "XenServer's"),
            ("hw_disk_type", "VMware's"),
            ("hw_floppy_bus", "servers have no floppy disks"),
            ("hw_ipxe_boot", "XenServer's"),
            ("img_bdm_v2", "of volumes, not of hardware"),
            ("img_bittorrent", "XenServer's"),
            ("img_block_device_mapping", "of volumes, not of hardware"),
            ("img_cache_in_nova", "XenServer's"),
            ("img_compression_level", "XenServer's"),
            ("img_linked_clone", "VMware's"),
            ("img_mappings", "of volumes, not of hardware"),
            ("img_owner_id", "the image service's own"),
            ("img_root_device_name", "the guest names its disks itself"),
            ("img_signature", "signatures are the image service's to verify"),
            ("img_signature_certificate_uuid", "signatures are the image service's to verify"),
            ("img_signature_hash_method", "signatures are the image service's to verify"),
            ("img_signature_key_type", "signatures are the image service's to verify"),
            ("img_use_agent", "XenServer's"),
            ("img_version", "the image service's own"),
            ("os_distro", "for people to read; what it needs is said by the other properties"),
            ("os_skip_agent_inject_files_at_boot", "XenServer's"),
            ("os_skip_agent_inject_ssh", "XenServer's"),
        )
    ),
)

ROWS: tuple[Definition, ...] = (
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

#: Of extra specs: all keys of a namespace are the table's. Others are anybody's own.
NAMESPACES = frozenset(
    row.flavor.partition(":")[0] for row in ROWS if ":" in row.flavor and "{" not in row.flavor.partition(":")[0]
)
#: Of image properties: whatever begins so is the table's.
IMAGE_PREFIX = "hw_"

_GROUPED = re.compile(rf"(trait|resources){key_pattern('{group}')}:.*", re.ASCII)


class Index:
    """Rows by their keys."""

    def __init__(self, keys: list[tuple[str, Definition]]) -> None:
        self._plain = {key: row for key, row in keys if "{" not in key}
        self._grouped = [(key, row) for key, row in keys if "{" in key]

    def find(self, key: str) -> Definition | None:
        row = self._plain.get(key)
        if row is not None or not (":" in key or "." in key):
            return row
        return next((row for pattern, row in self._patterns if pattern.fullmatch(key)), None)

    @functools.cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], Definition]]:
        """Made for the first key that needs them, and not for each daemon's start."""
        return [(re.compile(key_pattern(key), re.ASCII), row) for key, row in self._grouped]


_SPEC_KEYS = [(row.flavor, row) for row in ROWS if row.flavor]
_SPEC_KEYS += [(key, row) for row in ROWS for key in row.older if ":" in key or key == "hide_hypervisor_id"]
_PROPERTY_KEYS = [(row.image, row) for row in ROWS if row.image]
_PROPERTY_KEYS += [(key, row) for row in ROWS for key in row.older if ":" not in key and key != "hide_hypervisor_id"]

_SPECS = Index(_SPEC_KEYS)
_PROPERTIES = Index(_PROPERTY_KEYS)


def of_spec(key: str) -> Definition | None:
    """The row of an extra spec."""
    return _SPECS.find(key)


def of_property(key: str) -> Definition | None:
    """The row of an image property."""
    return _PROPERTIES.find(key)


def is_ours(key: str) -> bool:
    """Whether an extra spec of this key has to be one of the table's."""
    namespace, colon, _ = key.partition(":")
    return bool(colon) and (namespace in NAMESPACES or _GROUPED.fullmatch(key) is not None)
