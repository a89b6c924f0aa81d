"""Upload images to Glance: upload_images.py AUTH_URL REGION

Standard input: admin's password, then a line for each image, as for ``nova-lite-manage``: image import --id ID
--name NAME --disk-format F --container-format F [--kernel-id ID] [--ramdisk-id ID] [--property KEY=VALUE]... FILE.
An image that is there is left as it is; an older one of the same name goes.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

import openstack


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser()
    result.add_argument("words", nargs=2)
    for option in ("--id", "--name", "--disk-format", "--container-format", "--kernel-id", "--ramdisk-id"):
        result.add_argument(option)
    result.add_argument("--property", action="append", default=[])
    result.add_argument("file")
    return result


def properties(wanted: argparse.Namespace) -> dict[str, str]:
    found = {"kernel_id": wanted.kernel_id, "ramdisk_id": wanted.ramdisk_id}
    found |= dict(item.split("=", 1) for item in wanted.property)
    return {key: value for key, value in found.items() if value}


def upload(images: Any, wanted: argparse.Namespace) -> None:
    for image in list(images.images(name=wanted.name)):
        if image.id == wanted.id and image.status == "active":
            return
        images.delete_image(image.id)
    images.create_image(
        wanted.name,
        id=wanted.id,
        filename=wanted.file,
        disk_format=wanted.disk_format,
        container_format=wanted.container_format,
        visibility="public",
        allow_duplicates=True,
        **properties(wanted),
    )


def main(auth_url: str, region: str) -> None:
    password, *lines = sys.stdin.read().splitlines()
    images: Any = openstack.connect(
        auth_url=auth_url,
        username="admin",
        password=password,
        project_name="admin",
        user_domain_id="default",
        project_domain_id="default",
        region_name=region,
    ).image
    for line in lines:
        upload(images, parser().parse_args(shlex.split(line)))


if __name__ == "__main__":
    main(*sys.argv[1:])
