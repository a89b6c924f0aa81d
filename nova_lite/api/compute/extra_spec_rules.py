"""Which extra specs there are, and which values they take (checked since 2.86).

A key without a namespace, or of an unknown one, is anybody's own and passes. A key of a known namespace has to be a
known key, with a value of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from oslo_utils import strutils

from nova_lite import exception

Rule = Callable[[str], bool]


def _one_of(*words: str) -> Rule:
    return frozenset(words).__contains__


def _matching(pattern: str) -> Rule:
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: compiled.fullmatch(value) is not None


def _number(minimum: int, maximum: int | None = None) -> Rule:
    def check(value: str) -> bool:
        if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            return False
        return minimum <= int(value) and (maximum is None or int(value) <= maximum)

    return check


def _boolean(value: str) -> bool:
    return strutils.is_valid_boolstr(value)


def _anything(value: str) -> bool:
    return True


_CPUS = _matching(r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*")
_TUNING = ("cpu_period", "cpu_quota", "cpu_shares", "memory_limit", "memory_reservation", "memory_shares_share")

#: Namespace to its keys (regular expressions of what follows the colon) and their values.
RULES: dict[str, list[tuple[str, Rule]]] = {
    "accel": [("device_profile", _anything)],
    "aggregate_instance_extra_specs": [(".+", _anything)],
    "capabilities": [(".+", _anything)],
    "hw": [
        ("boot_menu", _boolean),
        ("cdrom_bus", _one_of("fdc", "ide", "sata", "scsi", "usb", "virtio")),
        ("cpu_cores|cpu_sockets|cpu_threads", _number(1)),
        ("cpu_max_cores|cpu_max_sockets|cpu_max_threads|cpu_maxcores|cpu_maxsockets|cpu_maxthreads", _number(1)),
        ("cpu_dedicated_mask", _CPUS),
        ("cpu_policy", _one_of("dedicated", "shared", "mixed")),
        ("cpu_realtime", _boolean),
        ("cpu_realtime_mask", _CPUS),
        ("cpu_thread_policy", _one_of("prefer", "isolate", "require")),
        ("disk_bus|input_bus", _one_of("fdc", "ide", "sata", "scsi", "usb", "virtio", "ps2")),
        ("emulator_threads_policy", _one_of("isolate", "share")),
        ("ephemeral_encryption", _boolean),
        ("ephemeral_encryption_format", _one_of("luks", "plain")),
        ("hide_hypervisor_id", _boolean),
        ("locked_memory", _boolean),
        ("machine_type", _anything),
        ("maxphysaddr_bits", _number(1)),
        ("maxphysaddr_mode", _one_of("emulate", "passthrough")),
        ("mem_encryption", _boolean),
        ("mem_encryption_model", _anything),
        ("mem_page_size", _matching(r"any|large|small|\d+([kKmMgG][iI]?[bB]?)?")),
        ("numa_cpus\\.\\d+", _CPUS),
        ("numa_mem\\.\\d+", _number(1)),
        ("numa_nodes", _number(1)),
        ("pci_numa_affinity_policy", _one_of("required", "preferred", "legacy", "socket")),
        ("pmem", _anything),
        ("pointer_model|input_bus", _anything),
        ("rescue_bus|rescue_device", _anything),
        ("serial_port_count", _number(0)),
        ("sound_model|usb_model", _anything),
        ("tpm_model", _one_of("tpm-tis", "tpm-crb")),
        ("tpm_secret_security", _one_of("user", "host", "deployment")),
        ("tpm_version", _one_of("1.2", "2.0")),
        ("video_model|vif_model", _anything),
        ("vif_multiqueue_enabled", _boolean),
        ("viommu_model", _one_of("intel", "smmuv3", "virtio", "auto")),
        ("virtio_packed_ring", _boolean),
        ("watchdog_action", _one_of("disabled", "none", "pause", "poweroff", "reset")),
        ("firmware_type|firmware_stateless", _anything),
    ],
    "hw_rng": [("allowed", _boolean), ("rate_bytes|rate_period", _number(0))],
    "hw_video": [("ram_max_mb", _number(0))],
    "os": [("secure_boot", _one_of("disabled", "required", "optional"))],
    "pci_passthrough": [("alias", _matching(r"[^:,]+(:\d+)?(,[^:,]+(:\d+)?)*"))],
    "quota": [
        ("disk_(read|write|total)_(bytes|iops)_sec(_max)?(_length)?", _number(0)),
        (f"({'|'.join(_TUNING)})", _number(-1)),
        ("cpu_shares_level|memory_shares_level|disk_io_shares_level|vif_shares_level", _anything),
        ("(cpu|memory|disk_io|vif)_(limit|reservation|shares_share)", _number(-1)),
        ("vif_(inbound|outbound)_(average|peak|burst)", _number(0)),
    ],
    "vmware": [(".+", _anything)],
}

_GROUPED: list[tuple[str, Rule]] = [
    (r"resources\d*:(?:[A-Z0-9_]+)", _number(0)),
    (r"resources_[a-zA-Z0-9_-]+:(?:[A-Z0-9_]+)", _number(0)),
    (r"trait\d*:[A-Z0-9_]+", _one_of("required", "forbidden")),
    (r"trait_[a-zA-Z0-9_-]+:[A-Z0-9_]+", _one_of("required", "forbidden")),
    (r"group_policy", _one_of("isolate", "none")),
]
_GROUP_NAMESPACE = re.compile(r"(resources|trait)(\d*|_[a-zA-Z0-9_-]+)")


def check(key: str, value: str) -> None:
    """Raises `ValidationError` for an unknown key of a known namespace, or a value that its key does not take."""
    namespace, colon, name = key.partition(":")
    rule = _find(_GROUPED, key) or _find(RULES.get(namespace, ()), name)
    if rule is not None:
        if not rule(value):
            raise exception.ValidationError(
                detail=f"Validation failed; {value!r} is not a valid value of extra spec '{key}'."
            )
    elif colon and (namespace in RULES or _GROUP_NAMESPACE.fullmatch(namespace)):
        raise exception.ValidationError(
            detail=f"Validation failed; extra spec '{key}' does not appear to be a valid extra spec."
        )


def _find(rules: Iterable[tuple[str, Rule]], name: str) -> Rule | None:
    return next((rule for pattern, rule in rules if re.fullmatch(pattern, name, re.ASCII)), None)
