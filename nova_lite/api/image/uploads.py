"""Uploads of image data, which arrive piece by piece."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import webob
import webob.exc

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.image import formats, store
from nova_lite.objects import Image
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes of quota to reserve first for a body without an announced length. Each further reservation doubles the sum.
FIRST_RESERVATION = 64 * 1024**2


class Input(Protocol):
    """The body of a request (``wsgi.input``)."""

    def read(self, size: int, /) -> bytes: ...


def check_length(length: int | None, limit: int) -> None:
    """Refuse an announced length above the limit of an image's size. None: it is not announced."""
    if length is not None and length > limit:
        raise webob.exc.HTTPRequestEntityTooLarge(explanation="The image is larger than this cloud accepts.")


def first_reservation(length: int | None, limit: int) -> int:
    """Return the bytes of quota to reserve before any data are stored. At least one, so that an upload has a size."""
    return max(1, min(FIRST_RESERVATION, limit) if length is None else length)


class Upload:
    """Data of an image that is ``saving``. It is a `nova_lite.api.http.transfers.BodySink`.

    The file gets its name when it is complete, and only then the image becomes ``active``. ``image``: the image as it
    is while it is saved; its size is reserved in the quota, and grows with the data. ``floor``: bytes of the store that
    stay free. ``fault_of`` returns the response to an error.
    """

    #: Status of the image when its data are complete.
    final_status = "active"

    def __init__(
        self,
        conductor: ConductorRPC,
        context: RequestContext,
        store_path: str,
        image: Image,
        limit: int,
        floor: int,
        fault_of: Callable[[Exception], webob.Response],
    ) -> None:
        self._conductor = conductor
        self._context = context
        self._store_path = store_path
        self.image = image
        self._limit = limit
        self._floor = floor
        self._next_check = store.SPACE_STEP
        self._fault_of = fault_of
        self._file: store.IncompleteFile | None = None
        self._result: dict[str, Any] = {}
        self._disk_error: OSError | None = None

    # --- called by a transfer thread

    def write(self, data: bytes) -> Callable[[], None] | None:
        if self._file is None:
            self._file = self._on_disk(self._open)
        size = self._file.size + len(data)
        check_length(size, self._limit)
        if size >= self._next_check:
            self._next_check = size + store.SPACE_STEP
            self._on_disk(lambda: store.require_room(self._store_path, len(data), self._floor))
        self._on_disk(functools.partial(self._file.write, data))
        return self._reserve if size > self.image.size else None

    def complete(self) -> None:
        file = self._file or self._on_disk(self._open)
        self._file = file
        self._result = self._on_disk(lambda: self._publish(file))

    def check(self, path: str) -> None:
        """Check complete data. Raises `ImageUnacceptable`."""
        formats.check(path, self.image.disk_format, self.image.id, self.image.container_format)

    def _publish(self, file: store.IncompleteFile) -> dict[str, Any]:
        """Return what the image's row has to name about the data."""
        sums = file.publish(self.check)
        path = store.file_path(self._store_path, self.image.id)
        size = formats.virtual_size(path, self.image.disk_format, self.image.container_format)
        return {**sums._asdict(), "virtual_size": size}

    def _open(self) -> store.IncompleteFile:
        store.prepare(self._store_path)
        return store.IncompleteFile(self._store_path, self.image.id)

    def _on_disk(self, work: Callable[[], T]) -> T:
        """Do something with the file. Raises `ServiceUnavailable` if the disk fails."""
        try:
            return work()
        except OSError as error:
            self._disk_error = error
            raise exceptions.ServiceUnavailable("The image's data cannot be stored now.") from error

    # --- called as the application is

    def _reserve(self) -> None:
        """Reserve twice the quota."""
        size = min(2 * self.image.size, self._limit)
        try:
            self.image = self._conductor.image_update(self._context, self.image.id, {"size": size}, "saving")
        except (exceptions.ImageNotFound, exceptions.ImageStatusConflict) as error:
            raise self._gone() from error

    def respond(self, error: Exception | None) -> webob.Response:
        """Return the response: activate the image, or make it ``queued`` again."""
        try:
            if error is not None:
                self._give_up()
                raise error
            self._activate()
            return webob.Response(status=204)
        except OSError:
            return self._fault_of(exceptions.ValidationError(detail="The upload ended early."))
        except Exception as problem:
            return self._fault_of(problem)

    def _activate(self) -> None:
        try:
            changes = {"status": self.final_status, **self._result}
            self._conductor.image_update(self._context, self.image.id, changes, "saving")
        except exceptions.ImageQuotaExceeded:
            store.remove(self._store_path, self.image.id)
            self._requeue()
            raise
        except (exceptions.ImageNotFound, exceptions.ImageStatusConflict) as error:
            store.remove(self._store_path, self.image.id)
            raise self._gone() from error

    def _gone(self) -> webob.exc.HTTPGone:
        return webob.exc.HTTPGone(explanation=f"Image {self.image.id} was deleted during its upload.")

    def _give_up(self) -> None:
        if self._disk_error is not None:
            LOG.error("The data of image %s cannot be stored: %s", self.image.id, self._disk_error)
        if self._file is not None:
            self._file.discard()
        self._requeue()

    def _requeue(self) -> None:
        self._reset({"status": "queued", "size": 0})

    def _reset(self, changes: dict[str, Any]) -> None:
        try:
            self._conductor.image_update(self._context, self.image.id, changes, "saving")
        except exceptions.NovaLiteException as error:
            LOG.warning("Image %s stays in saving after its upload failed: %s", self.image.id, error)


def receive_now(upload: Upload, source: Input, length: int | None) -> webob.Response:
    """Receive a body that has arrived already, and return the response. ``length``: None if it is not announced."""
    try:
        left = length
        while left != 0:
            data = source.read(store.CHUNK if left is None else min(store.CHUNK, left))
            if not data:
                break
            if (work := upload.write(data)) is not None:
                work()
            left = None if left is None else left - len(data)
        if left:
            raise OSError("the body is shorter than announced")
        upload.complete()
    except Exception as error:
        return upload.respond(error)
    return upload.respond(None)
