"""A complete Debian with the real cloud-init. Skipped without the image of `devstack/guest/cloud-image.sh`."""

from __future__ import annotations

import base64
import json
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.objects import VIF
from tests.integration.libvirt.conftest import MakeDriver, boot
from tests.integration.libvirt.metadata import Service
from tests.support.guests import make_flavor, make_image, make_instance, make_spec
from tests.support.waiting import wait_for

IMAGE = Path(os.environ.get("NOVA_LITE_CLOUD_IMAGE", "/opt/nova-lite/guest/cloud-image"))
USER = platform.freedesktop_os_release()["ID"]
USER_DATA = b"#!/bin/sh\necho user data ran on $(hostname) >/var/tmp/told\n"
PATIENCE = 1800.0

pytestmark = [
    pytest.mark.skipif(not (IMAGE / ".fingerprint").exists(), reason=f"there is no image in {IMAGE}"),
    pytest.mark.timeout(2000),
]


def make_key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "alice", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


@pytest.mark.parametrize("source", ["OpenStack", "ConfigDrive"])
def test_cloud_init_applies_name_key_and_user_data(
    make_driver: MakeDriver, service: Service, new_vif: Callable[[], VIF], tmp_path: Path, source: str
) -> None:
    """The settings come from the metadata service, or from a config drive if there is no service."""
    kernel, ramdisk = make_image(IMAGE / "vmlinuz", "aki"), make_image(IMAGE / "initrd.img", "ari")
    properties = {
        "kernel_id": kernel.id,
        "ramdisk_id": ramdisk.id,
        "os_command_line": (IMAGE / "cmdline").read_text().strip(),
    }
    key, vif = tmp_path / "key", new_vif()
    spec = make_spec(
        instance=make_instance(
            display_name="debian one",
            hostname="debian-one",
            flavor=make_flavor(memory_mb=512, root_gb=2),
            key_name="mine",
            key_data=make_key(key),
            user_data=base64.b64encode(USER_DATA).decode(),
        ),
        vifs=[vif],
        image=make_image(IMAGE / "root.img", "ami", properties=properties),
        images={kernel.id: kernel, ramdisk.id: ramdisk},
    )
    driver = make_driver("one", **(service.options if source == "OpenStack" else {}))
    service.serve(driver)
    boot(driver, service.know(spec))
    service.serve(driver)

    def ssh(command: str) -> str:
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "ConnectTimeout=5"]
        arguments = [argument for option in options for argument in ("-o", option)]
        result = subprocess.run(
            ["ssh", "-q", "-i", str(key), *arguments, f"{USER}@{vif.address}", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return result.stdout.strip()

    try:
        wait_for("the end of cloud-init", lambda: ssh("cat /run/cloud-init/result.json"), PATIENCE)
    except AssertionError as error:
        raise AssertionError(f"{error}; its console:\n{driver.consoles.output(spec.instance.uuid, 80)}") from error
    result = json.loads(ssh("cat /run/cloud-init/result.json"))["v1"]
    assert result["errors"] == []
    assert result["datasource"].startswith(f"DataSource{source}")
    assert ssh("hostname") == "debian-one"
    assert ssh("cat /var/tmp/told") == "user data ran on debian-one"
    assert spec.instance.uuid in ssh("cat /run/cloud-init/instance-data.json")
    # Asks the name server alone, which cloud-init has set up, and not /etc/hosts.
    assert ssh("getent -s dns hosts debian-one").split()[:1] == [vif.address], ssh("cat /etc/resolv.conf")
