"""Bodies of HTTP responses that may be long, slow or broken."""

from __future__ import annotations

import time

import requests
import urllib3

_PIECE = 65536


def read(response: requests.Response, most: int, deadline: float) -> bytes:
    """Read a body that may come in small pieces. ``deadline``: a time of `time.monotonic`.

    Raises ValueError if it has more than ``most`` bytes, and OSError if it is broken, or does not end in time.
    """
    data = b""
    try:
        while piece := response.raw.read1(_PIECE, decode_content=True):
            data += piece
            if len(data) > most:
                raise ValueError(f"it returned more than {most} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError("its response did not end in time")
    except urllib3.exceptions.HTTPError as error:
        raise OSError(f"its response is broken: {error}") from error
    return data
