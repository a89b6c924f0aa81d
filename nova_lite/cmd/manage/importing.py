"""``server import``: guests of Proxmox. Their disks become images, and it prints the commands for the rest."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import uuid
from collections.abc import Iterator, Mapping

from nova_lite.base import exceptions, files
from nova_lite.cmd.manage import accounts
from nova_lite.cmd.manage.app import App, Progress, at_least
from nova_lite.db.image import images
from nova_lite.image import store
from nova_lite.image.sources import proxmox, vma
from nova_lite.image.sources.proxmox import Guest
from nova_lite.image.sources.qcow2_file import Qcow2File
from nova_lite.objects import Image, ImageQuery

_GIB = 1024**3


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("platform", choices=("proxmox",))
    parser.add_argument("vmid", type=at_least(1), metavar="VMID", nargs="?", help="number of the guest; with --url")
    parser.add_argument("--url", metavar="URL", help="address of Proxmox's API: https://HOST:8006")
    parser.add_argument("--token-file", metavar="FILE", help="file with an API token: USER@REALM!NAME=SECRET")
    parser.add_argument("--ca-file", metavar="FILE", help="CA of the API, from /etc/pve/pve-root-ca.pem of a node")
    parser.add_argument(
        "--backup", metavar="FILE", help="backup (.vma, .vma.zst, .vma.lzo, .vma.gz) whose disks become images"
    )
    parser.add_argument("--project", help="id or name of the project that owns the images; with --backup")
    parser.add_argument("--network", default="NETWORK", help="network in the printed commands")


def import_server(app: App, args: argparse.Namespace) -> None:
    if (args.url is None) != (args.vmid is None) or (args.url is None) != (args.token_file is None):
        raise exceptions.InvalidInput(reason="--url, --token-file and the number of the guest need each other")
    if args.url is None and args.backup is None:
        raise exceptions.InvalidInput(reason="name a guest by --url, or a file by --backup")
    guest = None if args.url is None else _from_api(args)
    ids: dict[str, str] = {}
    if args.backup is not None:
        app.require_local_images()
        if args.project is None:
            raise exceptions.InvalidInput(reason="--backup needs --project, whose images the disks become")
        owner = accounts.project_id(app, args.project)
        with contextlib.ExitStack() as stack:
            with vma.opened(args.backup) as source:
                archive = vma.Archive(source, args.backup)
                guest = guest or _from_archive(archive)
                paths = _read_disks(app, stack, archive, guest)
            ids = {key: _add_image(app, _image(guest, key, owner), path) for key, path in paths.items()}
    assert guest is not None
    _show(app, args, guest, ids)


def _from_api(args: argparse.Namespace) -> Guest:
    with open(args.token_file, encoding="utf-8") as file:
        token = file.read(1024).strip()
    record = proxmox.Api(args.url, token, args.ca_file).read(args.vmid)
    guest = proxmox.guest_of(record.config, f"proxmox-{args.vmid}")
    if record.is_running:
        guest.notes.append("it is running: shut it down before the last backup")
    if args.backup is None:
        newest = record.backups[0] if record.backups else "none that the token may see"
        guest.notes.append(f"newest backup: {newest}")
    return guest


def _from_archive(archive: vma.Archive) -> Guest:
    text = archive.files.get(proxmox.CONFIGURATION, b"").decode(errors="replace")
    return proxmox.guest_of(proxmox.parse(text), "proxmox")


# --- disks


def _read_disks(app: App, stack: contextlib.ExitStack, archive: vma.Archive, guest: Guest) -> dict[str, str]:
    """Write the guest's disks that the archive has. Return the paths of the files, which ``stack`` removes."""
    numbers = {device.key: number for number, device in archive.devices.items() if device.key in guest.disks}
    for key in guest.disks.keys() - numbers:
        guest.notes.append(f"{key} is not in the backup")
    guest.disks = {key: archive.devices[numbers[key]].size for key in guest.disks if key in numbers}
    if not guest.disks:
        raise exceptions.InvalidInput(reason="the backup has no disk of the guest")
    store_path, progress = app.conf.image.store_path, Progress()
    store.prepare(store_path)
    paths = {key: stack.enter_context(files.large_part(store_path, store.TEMPORARY)) for key in guest.disks}
    with _written(app, archive, {numbers[key]: path for key, path in paths.items()}) as targets:
        archive.extract(targets, lambda done: progress.show(done, archive.clusters))
    progress.end()
    return paths


@contextlib.contextmanager
def _written(app: App, archive: vma.Archive, paths: Mapping[int, str]) -> Iterator[dict[int, Qcow2File]]:
    """Yield the disks to write, by number of the device. At the end they are complete."""
    room = store.Room(app.conf.image.store_path, app.conf.image.min_free_mb, 0)
    sizes = dict.fromkeys(paths, 0)
    with contextlib.ExitStack() as stack:
        targets = {}
        for number, path in paths.items():
            file = stack.enter_context(open(path, "r+b"))

            def check_room(size: int, number: int = number) -> None:
                sizes[number] = size
                room.check(sum(sizes.values()))

            targets[number] = Qcow2File(file.fileno(), archive.devices[number].size, check_room)
        yield targets
        for target in targets.values():
            target.finish()


def _image(guest: Guest, key: str, owner: str) -> Image:
    size, root = guest.disks[key], next(iter(guest.disks))
    return Image(
        id=str(uuid.uuid4()),
        name=_image_name(guest.name, key, root),
        min_disk=-(-size // _GIB),
        virtual_size=size,
        visibility="private",
        owner=owner,
        properties=guest.properties if key == root else {},
    )


def _add_image(app: App, image: Image, path: str) -> str:
    """Create an image, unless an earlier import of the same backup has. Return its id."""
    store_path = app.conf.image.store_path
    image.size, image.checksum, image.md5 = store.adopt(store_path, image.id, path)
    same = {"name": [image.name], "checksum": [image.checksum], "owner": [str(image.owner)], "status": ["active"]}
    for present in app.db.read(images.list_, app.context, ImageQuery(filters=same)):
        os.rename(store.file_path(store_path, image.id), store.file_path(store_path, present.id))
        return present.id
    return app.db.write(images.create, image).id


# --- the server


def _show(app: App, args: argparse.Namespace, guest: Guest, ids: Mapping[str, str]) -> None:
    commands = [shlex.join(command) for command in _commands(guest, ids, args.network)]
    if app.output == "json":
        print(json.dumps({"name": guest.name, "images": ids, "notes": guest.notes, "commands": commands}, indent=2))
        return
    print(*(f"# {note}" for note in guest.notes), *commands, sep="\n")


def _commands(guest: Guest, ids: Mapping[str, str], network: str) -> Iterator[list[str]]:
    """Yield the client's commands that make the server."""
    name, disks = guest.name, dict(guest.disks)
    root = next(iter(disks))
    root_gb = -(-disks.pop(root) // _GIB)
    if root not in ids:
        properties = [f"--property={key}={value}" for key, value in sorted(guest.properties.items())]
        for key in guest.disks:
            yield ["openstack", "image", "create", f"--file={key}.qcow2", "--disk-format=qcow2",
                   *(properties if key == root else []), _image_name(name, key, root)]  # fmt: skip
    sizes = [f"--vcpus={guest.vcpus}", f"--ram={guest.memory_mb}", f"--disk={root_gb}"]
    yield ["openstack", "flavor", "create", *sizes, name]
    ports = []
    for interface in guest.interfaces:
        ports.append(f"--port={name}-{interface.key}")
        port = [f"--network={network}", f"--mac-address={interface.mac}", f"{name}-{interface.key}"]
        yield ["openstack", "port", "create", *port]
    image = ids.get(root, name)
    yield ["openstack", "server", "create", f"--flavor={name}", f"--image={image}", *ports, "--wait", name]
    for key, size in disks.items():
        volume = f"{name}-{key}"
        image = ids.get(key, volume)
        gb = -(-size // _GIB)
        yield ["openstack", "volume", "create", f"--image={image}", f"--size={gb}", "--wait", volume]
        yield ["openstack", "server", "add", "volume", name, volume]


def _image_name(name: str, key: str, root: str) -> str:
    return name if key == root else f"{name}-{key}"
