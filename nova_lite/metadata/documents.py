"""Documents that a guest reads, in all dated versions of OpenStack's and EC2's metadata.

Guests request the newest version that they know. So the content of a version never changes, and new content gets a new
date.
"""

from __future__ import annotations

import base64
import binascii
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from nova_lite.base import ip
from nova_lite.metadata.vendordata import VendorData
from nova_lite.objects import VIF, FixedIp, GuestDevice, Instance, block_device, keypair
from nova_lite.objects.instance import AddressMode, version_of
from nova_lite.objects.pci import HOSTDEV_PHYSICAL

LATEST = "latest"

EC2_VERSIONS = (
    "1.0",
    "2007-01-19",
    "2007-03-01",
    "2007-08-29",
    "2007-10-10",
    "2007-12-15",
    "2008-02-01",
    "2008-09-01",
    "2009-04-04",
)
OPENSTACK_VERSIONS = (
    "2012-08-10", "2013-04-04", "2013-10-17", "2015-10-15", "2016-06-30", "2016-10-06", "2017-02-22", "2018-08-27",
    "2020-10-14", "2025-04-04",
)  # fmt: skip

META_DATA, NETWORK_DATA, USER_DATA = "meta_data.json", "network_data.json", "user_data"
VENDOR_DATA, VENDOR_DATA2, PASSWORD = "vendor_data.json", "vendor_data2.json", "password"

#: First OpenStack version of each document, in the order of lists.
SINCE = {
    META_DATA: "2012-08-10",
    USER_DATA: "2012-08-10",
    PASSWORD: "2013-04-04",
    VENDOR_DATA: "2013-10-17",
    NETWORK_DATA: "2015-10-15",
    VENDOR_DATA2: "2016-10-06",
}

#: Key of a node in EC2's tree for its name in lists.
NAME = "_name"

_SEED_BYTES = 512


class MetadataDocuments:
    """All documents of one guest. Raises `ValueError` for invalid base64.

    ``injected_files`` (path to base64) and ``admin_password`` are known only during a build, so only config drives have
    them.
    """

    def __init__(
        self,
        instance: Instance,
        vifs: list[VIF],
        vendor: VendorData,
        injected_files: Mapping[str, str] | None = None,
        admin_password: str | None = None,
    ) -> None:
        self._instance = instance
        self._vifs = vifs
        self._vendor = vendor
        self._admin_password = admin_password
        self.user_data = _decode(USER_DATA, instance.user_data) if instance.user_data else None
        self._paths = sorted(injected_files or {})
        #: Data of each injected file by its path below ``openstack``.
        self.files = {
            f"content/{number:04d}": _decode(path, (injected_files or {})[path])
            for number, path in enumerate(self._paths)
        }

    @functools.cached_property
    def _vendor_data(self) -> dict[str, Any]:
        return self._vendor.all(self._instance)

    # --- OpenStack

    def names(self, version: str) -> list[str]:
        """Return the names of the documents of a version."""
        names = [name for name, since in SINCE.items() if version >= since]
        return [name for name in names if name != USER_DATA or self.user_data is not None]

    def document(self, version: str, name: str) -> bytes:
        """Return a document, except the password. Raises `KeyError` if this version does not have it."""
        if name not in self.names(version):
            raise KeyError(name)
        makers: dict[str, Callable[[], Any]] = {
            META_DATA: lambda: self._meta_data(version),
            NETWORK_DATA: lambda: network_data(self._vifs),
            VENDOR_DATA: self._vendor.static,
            VENDOR_DATA2: lambda: self._vendor_data,
        }
        if name == USER_DATA:
            return self.user_data or b""
        return msgspec.json.encode(makers[name]())

    def _meta_data(self, version: str) -> dict[str, Any]:
        instance = self._instance
        data: dict[str, Any] = {
            "uuid": instance.uuid,
            "name": instance.display_name,
            "hostname": instance.hostname,
            "launch_index": instance.launch_index,
            "availability_zone": instance.availability_zone,
            "meta": instance.metadata,
        }
        if instance.key_name and instance.key_data:
            data["public_keys"] = {instance.key_name: instance.key_data}
            data["keys"] = [
                {"name": instance.key_name, "type": keypair.type_of(instance.key_data), "data": instance.key_data}
            ]
        if self._admin_password:
            data["admin_pass"] = self._admin_password
        if self._paths:
            data["files"] = [
                {"content_path": f"/{name}", "path": path} for name, path in zip(self.files, self._paths, strict=True)
            ]
        for since, name, make in _NEWER:
            if version >= since:
                data[name] = make(instance)
        if version >= "2016-06-30":
            data["devices"] = [*_disks(instance), *_interfaces(instance, self._vifs, version)]
        return data

    # --- EC2

    def ec2(self, version: str) -> dict[str, Any]:
        """Return the tree of a version: ``meta-data``, and ``user-data`` if there are some."""
        instance = self._instance
        data: dict[str, Any] = {
            "ami-id": instance.image_ref,
            "ami-launch-index": instance.launch_index,
            "ami-manifest-path": "FIXME",
            "instance-id": instance.uuid,
            "hostname": instance.hostname,
            "local-ipv4": next(self._addresses4(), ""),
            "reservation-id": instance.reservation_id,
            "security-groups": instance.interface_groups(),
        }
        if instance.key_name and instance.key_data:
            data["public-keys"] = {"0": {NAME: f"0={instance.key_name}", "openssh-key": instance.key_data}}
        if version >= "2007-01-19":
            data |= {"local-hostname": instance.hostname, "public-hostname": instance.hostname}
            data["public-ipv4"] = next((vif.floating_address for vif in self._vifs if vif.floating_address), "")
        if version >= "2007-08-29":
            data["instance-type"] = instance.flavor.name
        if version >= "2007-12-15":
            data["block-device-mapping"] = _ec2_mapping(instance)
            data |= {
                name: image_id
                for name, image_id in (("kernel-id", instance.kernel_id), ("ramdisk-id", instance.ramdisk_id))
                if image_id
            }
        if version >= "2008-02-01":
            data["placement"] = {"availability-zone": instance.availability_zone or ""}
        if version >= "2008-09-01":
            data["instance-action"] = "none"
        tree: dict[str, Any] = {"meta-data": data}
        if self.user_data is not None:
            tree["user-data"] = self.user_data
        return tree

    def _addresses4(self) -> Iterator[str]:
        every = (address for vif in self._vifs for address in (vif.address, *(fixed.address for fixed in vif.more)))
        return (address for address in every if version_of(address) == 4)


def _ec2_mapping(instance: Instance) -> dict[str, str]:
    """Return the names of disks by EC2's roles: the root disk, local disks, and volumes in the order of their names."""
    root = instance.root_device_name or "/dev/vda"
    local = block_device.local_disks(instance.flavor, instance.block_devices)
    names = sorted(device.device_name or "" for device in block_device.volumes(instance.block_devices))
    return (
        {"ami": root.rpartition("/")[2], "root": root}
        | {disk.role: root[:-1] + disk.letter for disk in local if disk.role != "root"}
        | {f"ebs{number}": name for number, name in enumerate(names)}
    )


#: Later fields of ``meta_data.json``: first version, name, value.
_NEWER: tuple[tuple[str, str, Callable[[Instance], Any]], ...] = (
    ("2013-04-04", "random_seed", lambda instance: base64.b64encode(os.urandom(_SEED_BYTES)).decode()),
    ("2015-10-15", "project_id", lambda instance: instance.project_id),
    ("2020-10-14", "dedicated_cpus", lambda instance: [] if instance.numa is None else instance.numa.dedicated_vcpus),
)


def _decode(name: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is not valid base64") from error


def network_data(vifs: list[VIF]) -> dict[str, Any]:
    """Return ``network_data.json``: links, and how their addresses are configured, as Nova describes it.

    A guest learns its name servers by DHCP where that runs. Name servers of other subnets are listed.
    """
    links: list[dict[str, Any]] = []
    networks: list[dict[str, Any]] = []
    services: list[dict[str, str]] = []
    for number, vif in enumerate(vifs):
        links.append(
            {
                "id": f"interface{number}",
                "vif_id": vif.id,
                "type": "phy" if vif.vif_type == HOSTDEV_PHYSICAL else vif.vif_type or "bridge",
                "ethernet_mac_address": vif.mac_address,
                "mtu": vif.network.mtu,
            }
        )
        first = FixedIp(
            address=vif.address,
            subnet_id="",
            cidr=vif.network.cidr,
            gateway=vif.network.gateway,
            dns=_name_servers(vif),
            address_mode=vif.network.address_mode,
        )
        has_dhcp = False
        for fixed in (first, *vif.more):
            mode = _address_mode(vif, fixed)
            if mode == AddressMode.DHCP and has_dhcp:
                mode = AddressMode.STATIC  # DHCP assigns one address to an interface.
            has_dhcp = has_dhcp or mode == AddressMode.DHCP
            network = {
                "id": f"network{len(networks)}",
                "network_id": vif.network.public_id,
                "link": f"interface{number}",
            }
            if mode == AddressMode.DHCP:
                networks.append({**network, "type": "ipv4_dhcp"})
                continue
            name_servers = [{"type": "dns", "address": address} for address in fixed.dns]
            described = _subnet(fixed, mode)
            if not fixed.is_further:
                described["routes"] += _host_routes(vif, version_of(fixed.address))
            networks.append({**network, **described, "services": name_servers})
            services.extend(service for service in name_servers if service not in services)
    return {"links": links, "networks": networks, "services": services}


def _address_mode(vif: VIF, fixed: FixedIp) -> str:
    """Return how the guest gets an address. On built-in networks router advertisements run, and DHCP unless the user
    has turned it off.
    """
    if vif.vif_type is not None or fixed.is_further:
        return fixed.address_mode or AddressMode.STATIC
    if version_of(fixed.address) == 6:
        return fixed.address_mode or AddressMode.SLAAC
    return AddressMode.DHCP if vif.network.enable_dhcp else AddressMode.STATIC


def _name_servers(vif: VIF) -> list[str]:
    """Return the name servers of the subnet. On built-in networks the gateway is one, too."""
    gateway = vif.network.gateway
    return vif.network.dns or ([gateway] if gateway and vif.vif_type is None else [])


def _host_routes(vif: VIF, version: int) -> list[dict[str, str]]:
    subnet = vif.network if version == 4 else vif.network.subnet6
    found = []
    for route in (subnet and subnet.host_routes) or ():
        cidr = ip.parse_network(route["destination"])
        netmask = str(cidr.netmask)
        found.append({"network": str(cidr.network_address), "netmask": netmask, "gateway": route["nexthop"]})
    return found


def _subnet(fixed: FixedIp, mode: str) -> dict[str, Any]:
    """Return an address and its subnet. Router advertisements name the gateway of dynamic addresses."""
    cidr = ip.parse_network(fixed.cidr, strict=False)
    anywhere = "0.0.0.0" if cidr.version == 4 else "::"  # noqa: S104 a route, no listener
    routes = [{"network": anywhere, "netmask": anywhere, "gateway": fixed.gateway}]
    return {
        "type": f"ipv{cidr.version}" if mode == AddressMode.STATIC else f"ipv{cidr.version}_{mode}",
        "ip_address": fixed.address,
        "netmask": str(cidr.netmask),
        "routes": routes if fixed.gateway and mode == AddressMode.STATIC else [],
    }


def _disks(instance: Instance) -> list[dict[str, Any]]:
    """Return the disks with a tag. The guest finds volumes by their serial number, too."""
    root = instance.root_device_name or "/dev/vda"
    tagged = [(str(device.volume_id), device) for device in block_device.volumes(instance.block_devices)]
    paths = {}
    for disk in block_device.local_disks(instance.flavor, instance.block_devices):
        if disk.device is not None:
            tagged.append((disk.role, disk.device))
            paths[disk.role] = root[:-1] + disk.letter
    return [
        {"type": "disk", "serial": device.volume_id, "path": paths.get(key, device.device_name)}
        | _place(instance, key)
        | {"tags": [device.tag]}
        for key, device in tagged
        if device.tag is not None
    ]


def _interfaces(instance: Instance, vifs: list[VIF], version: str) -> list[dict[str, Any]]:
    """Return the interfaces with a tag or, since 2017-02-22, with a VLAN."""
    found = []
    for vif in vifs:
        described: dict[str, Any] = {"type": "nic", "mac": vif.mac_address} | _place(instance, vif.mac_address.lower())
        if version >= "2017-02-22" and vif.vif_details.get("vlan"):
            described["vlan"] = int(vif.vif_details["vlan"])
        if version >= "2018-08-27":
            described["vf_trusted"] = False
        if vif.tag is not None:
            described["tags"] = [vif.tag]
        if vif.tag is not None or "vlan" in described:
            found.append(described)
    return found


def _place(instance: Instance, key: str) -> dict[str, str]:
    """Return bus and address of a device, each "none" if its host has not reported them."""
    place = GuestDevice(key) if instance.guest_devices is None else instance.guest_devices.place_of(key)
    return {"bus": place.bus, "address": place.address}
