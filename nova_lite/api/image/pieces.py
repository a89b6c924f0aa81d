"""Staging in pieces: an upload that a lost connection ends continues where it was, and not at its beginning.

A piece is ``PUT /images/{id}/stage`` with ``Content-Range: bytes FIRST-LAST/TOTAL``. The size of an ``uploading`` image
is what has arrived. It has a checksum once all of it has, and only then its import is accepted.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import webob.exc

from nova_lite.api.image import imports
from nova_lite.base import exceptions
from nova_lite.image import store
from nova_lite.objects import Image

_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", re.ASCII)


class Piece(NamedTuple):
    """Bytes ``first`` to ``last``, counted from 0, of ``total``."""

    first: int
    last: int
    total: int

    @property
    def is_last(self) -> bool:
        return self.last + 1 == self.total


def parse(header: str, length: int | None) -> Piece:
    """Return the piece that a header names. ``length``: of the request's body; None if it is not announced."""
    found = _RANGE.fullmatch(header)
    piece = Piece(*map(int, found.groups())) if found else None
    if piece is None or not piece.first <= piece.last < piece.total:
        raise exceptions.ValidationError(detail="Content-Range must be as bytes FIRST-LAST/TOTAL.")
    if length != piece.last - piece.first + 1:
        raise exceptions.ValidationError(detail="Content-Length must be the length of Content-Range.")
    return piece


def status_before(image: Image, piece: Piece, directory: str) -> str:
    """Return the status in which an image takes a piece.

    Raises a 416 that says where to continue, and a 409 if the image takes no piece or its earlier ones are gone.
    """
    if image.status == "queued" and piece.first:
        raise _elsewhere(image, 0)
    if image.status != imports.STAGED:
        return "queued"
    if image.checksum or piece.first != image.size:
        raise _elsewhere(image, image.size)
    path = store.file_path(directory, image.id)
    if not os.path.exists(path) or os.path.getsize(path) < piece.first:
        raise exceptions.Conflict(f"The staged data of image {image.id} are gone: delete it, and begin again.")
    return imports.STAGED


def _elsewhere(image: Image, arrived: int) -> webob.exc.HTTPException:
    return webob.exc.HTTPRequestRangeNotSatisfiable(
        explanation=f"Image {image.id} has {arrived} bytes: continue there.",
        headers={"Content-Range": f"bytes */{arrived}"},
    )


class StagedPiece(imports.StagedUpload):
    """Piece of data that wait for their import. After a failure the earlier pieces are kept."""

    def __init__(self, piece: Piece, *upload: Any) -> None:
        super().__init__(*upload)
        self.piece = piece

    def _publish(self, file: store.IncompleteFile) -> dict[str, Any]:
        if self.piece.first == 0:
            file.publish()
        else:
            file.append(self.piece.first)
        checksum, md5 = store.sums(store.file_path(self._store_path, self.image.id)) if self.piece.is_last else ("", "")
        return {"size": self.piece.last + 1, "checksum": checksum, "md5": md5}

    def _requeue(self) -> None:
        if self.piece.first == 0:
            super()._requeue()
        else:
            self._reset({"status": imports.STAGED, "size": self.piece.first})
