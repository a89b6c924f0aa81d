"""``[image]``: where images come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "backend",
        default="local",
        help=(
            "Entry point in nova_lite.image.backends: local (store_path) or glance. Use the same for API, "
            "conductor and compute."
        ),
    ),
    cfg.StrOpt(
        "store_path",
        default="$state_path/images",
        help=(
            "Directory of the local backend's image files. The image API writes it, and every compute host "
            "without store_address has to read it."
        ),
    ),
    cfg.StrOpt(
        "store_address",
        help=(
            "HOST:PORT of the join API of a controller, from which a compute host gets images, and to which it sends "
            "images of servers. nova-lite-setup compute sets it. Unset: store_path is a directory that all hosts share."
        ),
    ),
    cfg.IntOpt("max_upload_mb", default=51200, min=1, help="Largest file in MiB that the image API accepts."),
    cfg.IntOpt(
        "min_free_mb",
        default=1024,
        min=0,
        help=(
            "MiB that an upload leaves free on the disk of store_path. An upload to the image API gets 503 otherwise, "
            "and the image of a server, which its compute host saves, fails. A compute host leaves as much free on its "
            "disks, or reserved_host_disk_mb if that is more. Fetched images, copies of disks for images and backups "
            "of servers, and new data of volumes fail with a reason before guests lack room. Raise it where databases "
            "or guests share the disk."
        ),
    ),
    cfg.ListOpt(
        "import_hosts",
        default=[],
        help=(
            "Hosts, as NAME or NAME:PORT, from which users may have images loaded by URL (web-download). Empty: none. "
            "List mirrors that you trust: this machine connects to them. A name must not have an address of this "
            "machine or its link; list such an address itself."
        ),
    ),
    cfg.IntOpt(
        "uploads_per_project",
        default=4,
        min=-1,
        help=(
            "Number of uploads that a project may have under way at the same time; -1: unlimited. Raise it for "
            "projects that import many images."
        ),
    ),
    cfg.IntOpt(
        "image_count_total",
        default=1000,
        min=-1,
        help=(
            "Number of images that a project may own in the local backend, images of its servers included; "
            "-1: unlimited."
        ),
    ),
    cfg.IntOpt(
        "image_size_total",
        default=1048576,
        min=-1,
        help="MiB that a project's image files may take in the local backend; -1: unlimited.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="image")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"image": OPTS}
