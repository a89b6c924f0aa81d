"""Command ``image``: images of the built-in backend, rows and files."""

from __future__ import annotations

import argparse
import hashlib
import os
import uuid
from operator import attrgetter

from nova_lite.base import exceptions
from nova_lite.cmd.manage import accounts, fetching
from nova_lite.cmd.manage.app import App, Commands, Progress, at_least, key_value
from nova_lite.db.image import images
from nova_lite.image import formats, ova, store
from nova_lite.image.store import file_path
from nova_lite.objects import Image, ImageQuery


def register(commands: Commands) -> None:
    noun = commands.noun("image", "Import, list and delete images of the built-in backend.")
    import_ = commands.verb(
        noun,
        "import",
        "Copy a file into the store and print the image's id. Importing the same again changes nothing. "
        "Each disk of an OVA archive becomes an image: NAME, NAME-2 and so on.",
        import_image,
    )
    import_.add_argument("file", metavar="FILE")
    import_.add_argument("--name", required=True)
    import_.add_argument("--disk-format", choices=formats.DISK_FORMATS, required=True)
    import_.add_argument("--container-format", choices=formats.CONTAINER_FORMATS, default="bare")
    import_.add_argument("--id", type=_uuid, help="default: a new uuid")
    import_.add_argument("--kernel-id", help="kernel image of an AMI-style image")
    import_.add_argument("--ramdisk-id", help="ramdisk image of an AMI-style image")
    import_.add_argument("--min-disk", type=at_least(0), default=0, metavar="GB")
    import_.add_argument("--min-ram", type=at_least(0), default=0, metavar="MB")
    import_.add_argument("--visibility", choices=("public", "private", "shared", "community"), default="public")
    import_.add_argument("--project", help="id or name of the project that owns it")
    import_.add_argument("--property", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    fetching.add_options(
        commands.verb(
            noun,
            "fetch",
            "Fetch a well-known cloud image from its distributor, check it, and print the image's id. A download that "
            "broke continues. Fetching the same build again changes nothing.",
            fetching.fetch,
        )
    )
    commands.verb(noun, "list", "List all images.", list_)
    delete_ = commands.verb(noun, "delete", "Delete images and their files; existing servers keep their disks.", delete)
    delete_.add_argument("ids", nargs="+", metavar="ID")


def import_image(app: App, args: argparse.Namespace) -> None:
    app.require_local_images()
    with open(formats.open_regular(args.file), "rb") as file:
        disks = _disks(file.fileno(), args)
        for disk in disks:
            formats.check_disk(disk.part, args.disk_format, args.file)
        for number, disk in enumerate(disks, start=1):
            print(_import_disk(app, args, number, disk))


def _disks(descriptor: int, args: argparse.Namespace) -> list[ova.Disk]:
    """Return the disks of an OVA archive, or the file as the only one."""
    if args.container_format == ova.OVA:
        return ova.disks(descriptor, args.file)
    return [ova.Disk(args.file, args.file, ova.Part(descriptor, 0, os.fstat(descriptor).st_size), None)]


def _import_disk(app: App, args: argparse.Namespace, number: int, disk: ova.Disk) -> str:
    """Import a disk, unless that is done. Return the image's id. ``number``: from 1 on; the others have no id or name
    of their own."""
    image = _wanted(app, args)
    if number > 1:
        image.id, image.name = str(uuid.uuid4()), f"{image.name}-{number}"
    present = _present(app, image, disk, args.id if number == 1 else None)
    if present is None:
        _copy(app, image, disk)
        present = app.db.write(images.create, image)
    elif not os.path.exists(file_path(app.conf.image.store_path, present.id)):
        _copy(app, present, disk)
    return present.id


def list_(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("ID", "Name", "Status", "Disk Format", "Container Format", "Size", "Visibility", "Owner"),
        map(
            attrgetter("id", "name", "status", "disk_format", "container_format", "size", "visibility", "owner"),
            app.db.read(images.list_, app.context, ImageQuery()),
        ),
    )


def delete(app: App, args: argparse.Namespace) -> None:
    for image_id in args.ids:
        image = app.db.write(images.delete, app.context, image_id)
        store.remove(app.conf.image.store_path, image.id)


def _wanted(app: App, args: argparse.Namespace) -> Image:
    properties = dict(args.property)
    for name, image_id in (("kernel_id", args.kernel_id), ("ramdisk_id", args.ramdisk_id)):
        if image_id:
            properties[name] = app.db.read(images.get, app.context, image_id).id
    return Image(
        id=args.id or str(uuid.uuid4()),
        name=args.name,
        disk_format=args.disk_format,
        container_format="bare" if args.container_format == ova.OVA else args.container_format,
        min_disk=args.min_disk,
        min_ram=args.min_ram,
        visibility=args.visibility,
        owner=None if args.project is None else accounts.project_id(app, args.project),
        properties=properties,
    )


def _present(app: App, image: Image, disk: ova.Disk, image_id: str | None) -> Image | None:
    """Return the image of an earlier import with the same id, or without an id the same name and bytes."""
    digest = hashlib.sha256()
    disk.part.seek(0)
    while chunk := disk.read(store.CHUNK):
        digest.update(chunk)
    if image_id is None:
        return app.db.read(images.find_same, image.name, digest.hexdigest())
    present = app.db.read(images.by_id, image_id)
    if present is not None and present.checksum != digest.hexdigest():
        raise exceptions.ImageExists(f"Image {image_id} already exists, with other bytes than {disk.name}.")
    return present


def _copy(app: App, image: Image, disk: ova.Disk) -> None:
    store.prepare(app.conf.image.store_path)
    progress = Progress()
    disk.part.seek(0)
    image.size, image.checksum, image.md5 = store.add(
        app.conf.image.store_path, image.id, disk.part, lambda done: progress.show(done, disk.part.size)
    )
    image.virtual_size = formats.disk_size(disk.part, image.disk_format)
    progress.end()


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not a uuid") from error
