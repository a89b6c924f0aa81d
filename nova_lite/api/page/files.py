"""Files of the page, in memory with their compressed form."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

import webob

DIRECTORY = Path(__file__).with_name("static")

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class File(NamedTuple):
    """A file, and the tag by which a browser recognises that it has this one."""

    content_type: str
    data: bytes
    compressed: bytes
    etag: str


def load(directory: Path = DIRECTORY) -> dict[str, File]:
    """Return the files by their path on the site. ``/`` is index.html."""
    files = {f"/{path.name}": _read(path) for path in sorted(directory.iterdir()) if path.suffix in _TYPES}
    return {**files, "/": files["/index.html"]}


def _read(path: Path) -> File:
    data = path.read_bytes()
    return File(_TYPES[path.suffix], data, gzip.compress(data, 9, mtime=0), hashlib.sha256(data).hexdigest()[:32])


def respond(req: webob.Request, file: File) -> webob.Response:
    """Return the file, or 304 to a browser that has it. Browsers ask each time, so an upgrade shows at once."""
    response = webob.Response(status=200)
    response.headers["Content-Type"] = file.content_type
    response.headers["Cache-Control"] = "no-cache"
    response.headers["Vary"] = "Accept-Encoding"
    response.etag = file.etag
    if file.etag in req.if_none_match:
        response.status = 304
        del response.headers["Content-Type"]
        return response
    is_compressed = "gzip" in req.headers.get("Accept-Encoding", "")
    if is_compressed:
        response.headers["Content-Encoding"] = "gzip"
    response.body = file.compressed if is_compressed else file.data
    return response
