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
    ".woff2": "font/woff2",
}
#: The build names these files by their content, and they are compressed in themselves.
_LASTING = (".woff2",)


class File(NamedTuple):
    """A file, and the tag by which a browser recognises that it has this one.

    ``lasting``: another content gets another name.
    """

    content_type: str
    data: bytes
    compressed: bytes
    etag: str
    lasting: bool


def load(directory: Path = DIRECTORY) -> dict[str, File]:
    """Return the files by their path on the site. ``/`` is index.html."""
    files = {f"/{path.name}": _read(path) for path in sorted(directory.iterdir()) if path.suffix in _TYPES}
    return {**files, "/": files["/index.html"]}


def _read(path: Path) -> File:
    data = path.read_bytes()
    lasting = path.suffix in _LASTING
    compressed = data if lasting else gzip.compress(data, 9, mtime=0)
    return File(_TYPES[path.suffix], data, compressed, hashlib.sha256(data).hexdigest()[:32], lasting)


def respond(req: webob.Request, file: File) -> webob.Response:
    """Return the file, or 304 to a browser that has it. Browsers ask each time, so an upgrade shows at once.

    Browsers keep a lasting file for a year.
    """
    response = webob.Response(status=200)
    response.headers["Content-Type"] = file.content_type
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if file.lasting else "no-cache"
    response.headers["Vary"] = "Accept-Encoding"
    response.etag = file.etag
    if file.etag in req.if_none_match:
        response.status = 304
        del response.headers["Content-Type"]
        return response
    is_compressed = not file.lasting and "gzip" in req.headers.get("Accept-Encoding", "")
    if is_compressed:
        response.headers["Content-Encoding"] = "gzip"
    response.body = file.compressed if is_compressed else file.data
    return response
