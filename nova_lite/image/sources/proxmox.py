"""Guests of Proxmox: their configuration, from its API or a backup, in the words of this cloud.

A configuration is a stranger's text. Names, addresses and numbers are taken over if they have the form of one.
"""

from __future__ import annotations

import re
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import requests

from nova_lite.base import exceptions, response_body

#: Name of the configuration in a backup.
CONFIGURATION = "qemu-server.conf"

_TIMEOUT, _MAX_BODY = 30.0, 8 * 1024**2
_TOKEN = re.compile(r"[^\s!=]+@[^\s!=]+![^\s!=]+=[0-9A-Za-z-]+")
_HOSTNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_DISK = re.compile(r"(virtio|scsi|sata|ide)([0-9]{1,2})")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_SIZE = re.compile(r"([0-9]{1,12})([KMGT]?)")
_VOLUME = re.compile(r"[\w.-]+:[\w./:+-]+")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
#: Devices and settings without a counterpart that is chosen here.
_LOST = re.compile(r"(hostpci|usb|serial|parallel|virtiofs|numa)[0-9]+|args|audio0|ivshmem|watchdog|hugepages")
#: Models of SCSI controllers. The default is Proxmox's.
_SCSI = {
    "": "lsilogic",
    "lsi": "lsilogic",
    "virtio-scsi-pci": "virtio-scsi",
    "virtio-scsi-single": "virtio-scsi",
    "megasas": "lsisas1078",
}
_INTERFACES = ("virtio", "e1000", "e1000e", "rtl8139", "vmxnet3", "ne2k_pci", "pcnet")


class Interface(NamedTuple):
    """Interface of a guest. ``key``: net0 and so on. ``model`` is this cloud's."""

    key: str
    model: str
    mac: str


class Guest(msgspec.Struct, kw_only=True):
    """Guest of Proxmox. ``disks``: bytes by key, 0 if unknown; the guest boots from the first one.

    ``properties``: of the image that it boots from. ``notes``: what differs here.
    """

    name: str
    vcpus: int
    memory_mb: int
    disks: dict[str, int]
    interfaces: list[Interface]
    properties: dict[str, str]
    notes: list[str]


def parse(text: str) -> dict[str, str]:
    """Return the settings of a configuration file. Its snapshots, in sections of their own, are left out."""
    current = f"\n{text}".partition("\n[")[0]
    pairs = (line.partition(":") for line in current.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def guest_of(config: Mapping[str, str], default_name: str) -> Guest:
    """Return the guest of a configuration. Raises `InvalidInput` if it has no disk."""
    disks = _disks(config)
    if not disks:
        raise exceptions.InvalidInput(reason="the guest has no disk")
    name = config.get("name", "")
    sockets, cores = _number(config, "sockets", 1), _number(config, "cores", 1)
    found = Guest(
        name=name if _HOSTNAME.fullmatch(name) else default_name,
        vcpus=_number(config, "vcpus", sockets * cores),
        memory_mb=_number({"memory": config.get("memory", "").removeprefix("current=")}, "memory", 512),
        disks=disks,
        interfaces=[],
        properties={},
        notes=[f"{key} is not taken over" for key in sorted(config) if _LOST.fullmatch(key)],
    )
    if found.vcpus > sockets:
        found.properties["hw_cpu_max_sockets"] = str(sockets)
    _add_system(found, config)
    _add_bus(found, config)
    _add_interfaces(found, config)
    return found


def _disks(config: Mapping[str, str]) -> dict[str, int]:
    """Return bytes of the disks by key, that of the boot first, and the others in the order of their numbers."""
    found = {}
    for key, value in config.items():
        volume, options = _options(value)
        if _DISK.fullmatch(key) and volume != "none" and options.get("media") != "cdrom":
            size = _SIZE.fullmatch(options.get("size", ""))
            found[key] = int(size[1]) * _UNITS[size[2]] if size else 0
    order = [*_options(config.get("boot", ""))[1].get("order", "").split(";"), config.get("bootdisk", "")]
    names = [key for key in order if key in found]
    names += sorted(found, key=lambda key: (key.rstrip("0123456789"), int(re.sub(r"\D", "", key))))
    return {key: found[key] for key in names}


def _add_system(found: Guest, config: Mapping[str, str]) -> None:
    """Add what defines machine, firmware, system and TPM."""
    properties, notes = found.properties, found.notes
    is_q35 = "q35" in config.get("machine", "")
    if is_q35:
        properties["hw_machine_type"] = "q35"
    if config.get("bios") == "ovmf":
        properties["hw_firmware_type"] = "uefi"
        notes.append("the variables of the firmware are new: the guest starts by the default path of its disk")
        if _options(config.get("efidisk0", ""))[1].get("pre-enrolled-keys") == "1":
            if is_q35:
                properties["os_secure_boot"] = "required"
            else:
                notes.append("secure boot is off, since it needs a q35 machine")
    if config.get("ostype", "").startswith("w"):
        properties["os_type"] = "windows"
    elif config.get("ostype", "").startswith("l"):
        properties["os_type"] = "linux"
    if "tpmstate0" in config:
        version = _options(config["tpmstate0"])[1].get("version", "v1.2")
        properties["hw_tpm_version"] = "2.0" if version == "v2.0" else "1.2"
        notes.append("the TPM is new: have the recovery keys of encrypted disks ready")
    if re.match(r"(enabled=)?1(,|$)", config.get("agent", "")):
        properties["hw_qemu_guest_agent"] = "yes"


def _add_bus(found: Guest, config: Mapping[str, str]) -> None:
    """Add the bus of the first disk, which all disks have here."""
    buses = [key.rstrip("0123456789") for key in found.disks]
    bus = buses[0]
    if bus == "scsi":
        model = _SCSI.get(config.get("scsihw", ""))
        if model is None:
            found.notes.append("its SCSI controller does not exist here: the disks are on a SATA bus")
            bus = "sata"
        else:
            found.properties["hw_scsi_model"] = model
    elif bus == "ide" and found.properties.get("hw_machine_type") == "q35":
        bus = "sata"
    found.properties["hw_disk_bus"] = bus
    if len({*buses}) > 1:
        found.notes.append(f"all disks are on a bus of the kind {bus}")


def _add_interfaces(found: Guest, config: Mapping[str, str]) -> None:
    for key in sorted(key for key in config if re.fullmatch(r"net[0-9]{1,2}", key)):
        options = _options("," + config[key])[1]
        model, mac = next(((model, mac) for model, mac in options.items() if _MAC.fullmatch(mac)), ("", ""))
        if not mac:
            found.notes.append(f"{key} is not taken over")
            continue
        found.interfaces.append(Interface(key, model if model in _INTERFACES else "virtio", mac.lower()))
        if re.fullmatch(r"[0-9]{1,4}", options.get("tag", "")):
            found.notes.append(f"{key} was in VLAN {options['tag']}: choose the network for it")
    if found.interfaces:
        found.properties["hw_vif_model"] = found.interfaces[0].model
        if len({interface.model for interface in found.interfaces}) > 1:
            found.notes.append(f"all interfaces have the model {found.interfaces[0].model}")


def _options(value: str) -> tuple[str, dict[str, str]]:
    """Return the text before the options of a value, and the options."""
    first, _, rest = value.partition(",")
    if "=" in first:
        first, rest = "", value
    pairs = (part.partition("=") for part in rest.split(","))
    return first, {key: text for key, _, text in pairs if key}


def _number(config: Mapping[str, str], key: str, default: int) -> int:
    text = config.get(key) or str(default)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise exceptions.InvalidInput(reason=f"{key} of the guest is not a number")
    return int(text)


class Record(NamedTuple):
    """Guest in the API. ``backups``: names of its backups, the newest first."""

    config: dict[str, str]
    is_running: bool
    backups: list[str]


class Api:
    """API of a Proxmox cluster. ``token``: USER@REALM!NAME=SECRET. ``authorities``: file with its CA, or None.

    All methods raise OSError, or `InvalidInput` for a response that is none of Proxmox.
    """

    def __init__(self, url: str, token: str, authorities: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise exceptions.InvalidInput(reason="the URL of Proxmox is not of the form https://HOST:8006")
        if not _TOKEN.fullmatch(token):
            raise exceptions.InvalidInput(reason="the token is not of the form USER@REALM!NAME=SECRET")
        self._url = f"https://{parts.netloc}/api2/json"
        self._headers = {"Authorization": f"PVEAPIToken={token}"}
        self._verify: str | bool = authorities or True

    def read(self, vmid: int) -> Record:
        """Return a guest by its number."""
        guests = self._get("/cluster/resources?type=vm")
        found = next((item for item in guests if item.get("vmid") == vmid and item.get("type") == "qemu"), None)
        if found is None:
            raise exceptions.InvalidInput(reason=f"Proxmox has no virtual machine {vmid} that the token may see")
        node = urllib.parse.quote(str(found.get("node")), safe="")
        config = self._get(f"/nodes/{node}/qemu/{vmid}/config", dict)
        backups: list[tuple[int, str]] = []
        for storage in self._get(f"/nodes/{node}/storage?content=backup"):
            name = urllib.parse.quote(str(storage.get("storage")), safe="")
            for item in self._get(f"/nodes/{node}/storage/{name}/content?content=backup&vmid={vmid}"):
                if _VOLUME.fullmatch(str(item.get("volid"))) and isinstance(item.get("ctime"), int):
                    backups.append((item["ctime"], item["volid"]))
        texts = {str(key): str(value) for key, value in config.items()}
        return Record(texts, found.get("status") == "running", [name for _, name in sorted(backups, reverse=True)])

    def _get(self, path: str, kind: type = list) -> Any:
        """Return the data of a response, which are a list of objects or an object."""
        try:
            with requests.get(
                self._url + path,
                headers=self._headers,
                verify=self._verify,
                timeout=_TIMEOUT,
                stream=True,
                allow_redirects=False,
            ) as response:
                if response.status_code != 200:
                    raise OSError(f"status {response.status_code}")
                text = response_body.read(response, _MAX_BODY, time.monotonic() + _TIMEOUT)
            data = msgspec.json.decode(text, type=dict[str, Any])["data"]
            msgspec.convert(data, list[dict[str, Any]] if kind is list else dict[str, Any])
        except OSError as error:
            raise OSError(f"Proxmox does not answer {path.partition('?')[0]}: {error}") from error
        except (ValueError, KeyError) as error:
            raise exceptions.InvalidInput(
                reason=f"the response to {path.partition('?')[0]} is none of Proxmox"
            ) from error
        return data
