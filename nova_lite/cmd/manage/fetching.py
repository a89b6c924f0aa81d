"""``image fetch``: well-known cloud images from their distributors."""

from __future__ import annotations

import argparse
import posixpath
import urllib.parse
import uuid

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Progress
from nova_lite.db.image import images
from nova_lite.image import formats, store
from nova_lite.image.sources import catalogue, fetching
from nova_lite.image.sources.catalogue import CloudImage
from nova_lite.image.sources.fetching import Checksum
from nova_lite.objects import Image, ImageQuery

#: Property of an image: the published sum of the bytes that it was fetched from.
_FETCHED = "fetched_checksum"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", metavar="DISTRIBUTION[/RELEASE]", nargs="?", help="default release: the newest known")
    parser.add_argument("--list", action="store_true", help="list the known images")
    parser.add_argument("--architecture", default="x86_64", choices=("x86_64", "aarch64"))
    parser.add_argument("--name", help="name of the image; default: DISTRIBUTION-RELEASE")
    parser.add_argument("--visibility", choices=("public", "private", "shared", "community"), default="public")
    parser.add_argument(
        "--mirror",
        metavar="URL",
        help="address in place of the distributor's site, for the image and its checksum; http needs --checksum",
    )
    parser.add_argument("--checksum", type=_checksum, metavar="HEX", help="expected sum; default: the published one")


def fetch(app: App, args: argparse.Namespace) -> None:
    if args.list or args.image is None:
        columns = ("Name", "Login", "Architectures", "Site")
        app.show(columns, [(i.name, i.user, ", ".join(i.architectures), i.site) for i in catalogue.IMAGES])
        return
    app.require_local_images()
    found = catalogue.find(args.image)
    url, wanted = _source(found, args)
    image = _wanted(found, args, wanted)
    present = _present(app, image)
    print(present.id if present is not None else _fetch(app, image, url, wanted).id)


def _source(found: CloudImage, args: argparse.Namespace) -> tuple[str, Checksum]:
    """Return the address and the sum of the image."""
    site = (args.mirror or found.site).rstrip("/")
    parts = urllib.parse.urlsplit(site)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise exceptions.InvalidInput(reason="--mirror is not of the form https://HOST/PATH")
    if parts.scheme == "http" and args.checksum is None:
        raise exceptions.InvalidInput(reason="a mirror without TLS proves nothing: add --checksum, or use https")
    file = found.file(args.architecture)
    sums = f"{site}/{found.sums_file(args.architecture)}"
    return f"{site}/{file}", args.checksum or fetching.published(sums, posixpath.basename(file))


def _wanted(found: CloudImage, args: argparse.Namespace, wanted: Checksum) -> Image:
    name = args.name or found.image_name(args.architecture)
    properties = found.properties(args.architecture) | {_FETCHED: str(wanted)}
    return Image(
        id=str(uuid.uuid4()), name=name, disk_format=catalogue.FORMAT, visibility=args.visibility,
        properties=properties,
    )  # fmt: skip


def _present(app: App, image: Image) -> Image | None:
    """Return the image that was fetched from the same bytes before. Images of projects can have the same properties."""
    query = ImageQuery(filters={"name": [image.name], "status": ["active"]})
    named = [other for other in app.db.read(images.list_, app.context, query) if other.owner is None]
    fetched = image.properties[_FETCHED]
    return next((other for other in named if other.properties.get(_FETCHED) == fetched), None)


def _fetch(app: App, image: Image, url: str, wanted: Checksum) -> Image:
    store_path, floor = app.conf.image.store_path, app.conf.image.min_free_mb
    room, progress = store.Room(store_path, floor, 0), Progress()

    def show(done: int, total: int) -> None:
        room.check(done)
        progress.show(done, total)

    with fetching.partial(store_path, wanted) as path:
        fetching.Download(url, path, wanted, show, app.timing.fetch_wait).run()
        progress.end()
        formats.check(path, catalogue.FORMAT, url)
        image.virtual_size = formats.virtual_size(path, catalogue.FORMAT)
        image.min_disk = -(-(image.virtual_size or 0) // 1024**3)
        image.size, image.checksum, image.md5 = store.adopt(store_path, image.id, path)
    return app.db.write(images.create, image)


def _checksum(text: str) -> Checksum:
    try:
        return fetching.checksum(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
