"""The store of a controller, as a compute host reaches it: through the join API, over TLS.

The host signs each request with the key by which it signs its messages. It believes the data by size and checksum,
which the conductor names in its command.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from typing import IO

from oslo_config import cfg

from nova_lite.base import exceptions, host_requests
from nova_lite.base.host_requests import Signature
from nova_lite.image import store, verified
from nova_lite.objects import Image
from nova_lite.rpc import keys

#: Seconds for which a connection may be silent.
TIMEOUT = 60.0
_MAX_REFUSAL = 65536
_DATA_TYPE = "application/octet-stream"


class RemoteStore:
    """Client of the store at ``[image] store_address``."""

    def __init__(self, conf: cfg.ConfigOpts, clock: Callable[[], float] = time.time) -> None:
        """Read the authority's certificate. Raises `ConfigurationError`."""
        self._address: str = conf.image.store_address
        self._clock = clock
        self._floor = conf.image.min_free_mb * 1024**2
        if not conf.rpc.keys_directory or not conf.rpc.trust_ca_file:
            raise exceptions.ConfigurationError(
                reason="[image] store_address needs [rpc] keys_directory and trust_ca_file."
            )
        self._key_path = keys.private_path(conf.rpc.keys_directory, keys.COMPUTE, conf.host)
        host, _, port = self._address.rpartition(":")
        try:
            self._host, self._port = host.strip("[]"), int(port)
            self._tls = ssl.create_default_context(cafile=conf.rpc.trust_ca_file)
        except (OSError, ValueError) as error:
            raise exceptions.ConfigurationError(
                reason=f"[image] store_address, [rpc] trust_ca_file: {error}"
            ) from error

    def fetch(self, image: Image, target: str) -> None:
        """Write an image's data to a file. Raises like `nova_lite.image.driver.ImageBackend.fetch`."""
        try:
            store.require_room(os.path.dirname(target), image.size, self._floor)
            with verified.whole(target), self._connection() as connection:
                chunks = self._chunks(connection, image)
                size, checksum = verified.write(chunks, target, image.hash_algorithm)
                verified.check(image, size, checksum)
        except OSError as error:
            raise exceptions.VirtDriverError(
                reason=f"image {image.id} cannot be written: {error.strerror or error}"
            ) from error

    def upload(self, image: Image, source: str, progress: Callable[[int], None]) -> None:
        """Send a file as the data of an image that this host makes. ``progress`` gets the number of bytes sent.

        Raises `ImageNotFound`, `ImageUploadFailed`, or `ServiceUnavailable` for a later attempt.
        """
        try:
            with open(source, "rb") as reader, self._connection() as connection:
                length = os.fstat(reader.fileno()).st_size
                status, message = self._send(connection, image, reader, length, progress)
        except OSError as error:
            raise exceptions.ImageUploadFailed(image_id=image.id, reason=error.strerror or str(error)) from error
        if status == 204:
            return
        if status in (404, 410):
            raise exceptions.ImageNotFound(image_id=image.id)
        if status in (429, 503):
            raise exceptions.ServiceUnavailable(message)
        raise exceptions.ImageUploadFailed(image_id=image.id, reason=message)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPSConnection]:
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT, context=self._tls, blocksize=verified.CHUNK
        )
        with contextlib.closing(connection):
            yield connection

    def _chunks(self, connection: http.client.HTTPSConnection, image: Image) -> Iterator[bytes]:
        """Yield the data. Raises errors that name the image, so that an OSError is one of the target."""
        try:
            path = host_requests.image_path(image.id)
            connection.request("GET", path, headers={"Authorization": self._signature("GET", path, 0)})
            response = connection.getresponse()
            if response.status == 404:
                raise exceptions.ImageGone(image_id=image.id, reason=_message(response))
            if response.status != 200:
                raise exceptions.ImageDownloadFailed(image_id=image.id, reason=_message(response))
            if image.size and response.length != image.size:
                raise exceptions.ImageCorrupt(
                    image_id=image.id, reason=f"{response.length} bytes where {image.size} were registered"
                )
            left = response.length or 0
            while left and (chunk := response.read(min(left, verified.CHUNK))):
                left -= len(chunk)
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise exceptions.ImageDownloadFailed(image_id=image.id, reason=self._unreachable(error)) from error
        if left:
            raise exceptions.ImageDownloadFailed(image_id=image.id, reason=f"{self._address} ended the connection")

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        image: Image,
        reader: IO[bytes],
        length: int,
        progress: Callable[[int], None],
    ) -> tuple[int, str]:
        """Send the file and return the status of the response, and the message of a refusal."""
        path = host_requests.image_path(image.id)
        try:
            connection.putrequest("PUT", path)
            connection.putheader("Authorization", self._signature("PUT", path, length))
            connection.putheader("Content-Type", _DATA_TYPE)
            connection.putheader("Content-Length", str(length))
            connection.endheaders()
            self._send_body(connection, reader, progress)
            response = connection.getresponse()
            return response.status, "" if response.status == 204 else _message(response)
        except (OSError, http.client.HTTPException) as error:
            raise exceptions.ServiceUnavailable(self._unreachable(error)) from error

    @staticmethod
    def _send_body(connection: http.client.HTTPSConnection, reader: IO[bytes], progress: Callable[[int], None]) -> None:
        """Send the file until it ends or the other side has refused the rest of it: its response says why."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while chunk := _read(reader):
                connection.send(chunk)
                progress(reader.tell())

    def _signature(self, method: str, path: str, length: int) -> str:
        """Sign a request with the present key, which may have been rotated. Raises `ConfigurationError`."""
        key = keys.PrivateKey.from_file(self._key_path)
        sent = int(self._clock())
        text = host_requests.signed_text(method, path, length, sent)
        return Signature(key.id, sent, key.sign(text)).header()

    def _unreachable(self, error: Exception) -> str:
        return f"{self._address} cannot be reached: {getattr(error, 'strerror', None) or error or type(error).__name__}"


def _read(reader: IO[bytes]) -> bytes:
    """Read the next part of a file of this host. Raises `VirtDriverError`."""
    try:
        return reader.read(verified.CHUNK)
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"the image cannot be read: {error.strerror or error}") from error


def _message(response: http.client.HTTPResponse) -> str:
    """Return the message of a refusal."""
    try:
        return str(json.loads(response.read(_MAX_REFUSAL))["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the store answers with status {response.status}"
