"""The config drive: a small ISO 9660 volume named ``config-2`` that tells a guest who it is, as cloud-init reads it."""

from __future__ import annotations

import base64
import binascii
import io
import ipaddress
import os
from typing import Any

import msgspec
import pycdlib

from nova_lite import exception, files
from nova_lite.objects import VIF, Image, Instance, keypair
from nova_lite.virt.driver import SpawnSpec

LABEL = "config-2"
_SEED_BYTES = 512


def is_wanted(instance: Instance, image: Image | None, forced: bool) -> bool:
    mandatory = image is not None and image.properties.get("img_config_drive") == "mandatory"
    return instance.config_drive or mandatory or forced


def make(path: str, spec: SpawnSpec) -> None:
    """Write the volume for ``spec`` to ``path`` (mode 0600: it may hold a password); raises `ConfigDriveInvalid`."""
    try:
        content = files_of(spec)
        write_iso(path, content)
    except (pycdlib.pycdlibexception.PyCdlibException, OSError, ValueError) as error:
        raise exception.ConfigDriveInvalid(reason=" ".join(str(error).split())) from error


def files_of(spec: SpawnSpec) -> dict[str, bytes]:
    """Path in the volume to content."""
    instance = spec.instance
    injected = {path: _decode(path, data) for path, data in sorted(spec.injected_files.items())}
    content = {
        "openstack/latest/meta_data.json": msgspec.json.encode(_meta_data(spec, list(injected))),
        "openstack/latest/network_data.json": msgspec.json.encode(network_data(spec.vifs)),
        "openstack/latest/vendor_data.json": b"{}",
        "ec2/latest/meta-data.json": msgspec.json.encode(_ec2_meta_data(spec)),
    }
    if instance.user_data:
        user_data = _decode("user_data", instance.user_data)
        content["openstack/latest/user_data"] = user_data
        content["ec2/latest/user-data"] = user_data
    for number, data in enumerate(injected.values()):
        content[f"openstack/{_content_path(number)}"] = data
    return content


def _content_path(number: int) -> str:
    return f"content/{number:04d}"


def _decode(what: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{what} is not valid base64") from error


def _meta_data(spec: SpawnSpec, paths: list[str]) -> dict[str, Any]:
    instance = spec.instance
    data: dict[str, Any] = {
        "uuid": instance.uuid,
        "name": instance.display_name,
        "hostname": instance.hostname,
        "launch_index": instance.launch_index,
        "availability_zone": instance.availability_zone,
        "project_id": instance.project_id,
        "meta": instance.metadata,
        "random_seed": base64.b64encode(os.urandom(_SEED_BYTES)).decode(),
        "devices": [],
    }
    if instance.key_name and instance.key_data:
        data["public_keys"] = {instance.key_name: instance.key_data}
        data["keys"] = [
            {"name": instance.key_name, "type": keypair.type_of(instance.key_data), "data": instance.key_data}
        ]
    if spec.admin_password:
        data["admin_pass"] = spec.admin_password
    if paths:
        data["files"] = [
            {"content_path": f"/{_content_path(number)}", "path": path} for number, path in enumerate(paths)
        ]
    return data


def _ec2_meta_data(spec: SpawnSpec) -> dict[str, Any]:
    instance = spec.instance
    data: dict[str, Any] = {
        "instance-id": instance.uuid,
        "hostname": instance.hostname,
        "local-hostname": instance.hostname,
        "ami-launch-index": instance.launch_index,
        "instance-type": instance.flavor.name,
        "reservation-id": instance.reservation_id,
        "placement": {"availability-zone": instance.availability_zone},
    }
    if spec.vifs:
        data["local-ipv4"] = spec.vifs[0].address
    if instance.key_name and instance.key_data:
        data["public-keys"] = {"0": {"_name": f"0={instance.key_name}", "openssh-key": instance.key_data}}
    return data


def network_data(vifs: list[VIF]) -> dict[str, Any]:
    """``network_data.json``: links, their addresses, and name servers. Also right where nobody answers DHCP."""
    links: list[dict[str, Any]] = []
    networks: list[dict[str, Any]] = []
    services: list[dict[str, str]] = []
    for number, vif in enumerate(vifs):
        cidr = ipaddress.ip_network(vif.network.cidr, strict=False)
        name_servers = [{"type": "dns", "address": address} for address in vif.network.dns]
        routes = []
        if vif.network.gateway:
            anywhere = str(ipaddress.IPv4Address(0) if vif.version == 4 else ipaddress.IPv6Address(0))
            routes.append({"network": anywhere, "netmask": anywhere, "gateway": vif.network.gateway})
        links.append(
            {
                "id": f"interface{number}",
                "vif_id": vif.id,
                "type": "bridge",
                "ethernet_mac_address": vif.mac_address,
                "mtu": vif.network.mtu,
            }
        )
        networks.append(
            {
                "id": f"network{number}",
                "network_id": vif.network.id,
                "type": f"ipv{vif.version}",
                "link": f"interface{number}",
                "ip_address": vif.address,
                "netmask": str(cidr.netmask),
                "routes": routes,
                "services": name_servers,
            }
        )
        services.extend(service for service in name_servers if service not in services)
    return {"links": links, "networks": networks, "services": services}


def write_iso(path: str, content: dict[str, bytes]) -> None:
    """An ISO 9660 volume with Joliet and Rock Ridge names. Its plain names are numbers; nobody reads those."""
    volume = pycdlib.PyCdlib()
    volume.new(interchange_level=3, vol_ident=LABEL, joliet=3, rock_ridge="1.09")
    plain_names: dict[str, str] = {"": ""}
    for number, (name, data) in enumerate(sorted(content.items())):
        directory, _, base = name.rpartition("/")
        _add_directory(volume, directory, plain_names)
        plain = f"{plain_names[directory]}/F{number:07d}.;1"
        volume.add_fp(io.BytesIO(data), len(data), plain, rr_name=base, joliet_path=f"/{name}")
    with open(path, "wb", opener=files.private_opener) as file:
        volume.write_fp(file)
    volume.close()


def _add_directory(volume: pycdlib.PyCdlib, directory: str, plain_names: dict[str, str]) -> None:
    """Make a directory with its parents; ``plain_names`` maps those that exist to their plain names."""
    if directory in plain_names:
        return
    parent, _, base = directory.rpartition("/")
    _add_directory(volume, parent, plain_names)
    plain = f"{plain_names[parent]}/D{len(plain_names):07d}"
    volume.add_directory(plain, rr_name=base, joliet_path=f"/{directory}")
    plain_names[directory] = plain
