"""Arguments for a driver, with defaults for everything that a test does not care about."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any

from nova_lite.objects import VIF, Flavor, Image, Instance, Network
from nova_lite.virt.abilities import SpawnSpec


def make_network(**changes: Any) -> Network:
    values: dict[str, Any] = {
        "id": "5f3f3c1e-64a4-4a76-a1a5-5a9c7f3c4b10",
        "name": "private",
        "cidr": "10.76.0.0/24",
        "gateway": "10.76.0.1",
        "bridge": "nltest0",
        "start": "10.76.0.10",
        "end": "10.76.0.250",
    }
    return Network(**{**values, **changes})


def make_vif(number: int = 1, network: Network | None = None, **changes: Any) -> VIF:
    values: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "mac_address": f"fa:16:3e:00:76:{number:02x}",
        "address": f"10.76.0.{9 + number}",
        "network": network or make_network(),
    }
    return VIF(**{**values, **changes})


def make_flavor(**changes: Any) -> Flavor:
    values: dict[str, Any] = {"flavorid": "1", "name": "m1.nano", "vcpus": 1, "memory_mb": 128, "root_gb": 1}
    return Flavor(**{**values, **changes})


def make_instance(**changes: Any) -> Instance:
    values: dict[str, Any] = {
        "uuid": str(uuid.uuid4()),
        "project_id": "project",
        "user_id": "user",
        "display_name": "web one",
        "hostname": "web-one",
        "vm_state": "building",
        "flavor": make_flavor(),
    }
    return Instance(**{**values, **changes})


def make_image(path: Path, disk_format: str = "raw", **changes: Any) -> Image:
    """Return an image whose bytes are the file's, named by its path."""
    data = path.read_bytes()
    values: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "name": str(path),
        "disk_format": disk_format,
        "size": len(data),
        "checksum": hashlib.sha256(data).hexdigest(),
    }
    return Image(**{**values, **changes})


def make_spec(**changes: Any) -> SpawnSpec:
    values: dict[str, Any] = {
        "instance": make_instance(),
        "generation": 1,
        "vifs": [],
        "image": None,
        "images": {},
        "injected_files": {},
        "admin_password": None,
        "fence": lambda: None,
    }
    return SpawnSpec(**{**values, **changes})
