"""Packet filters of this host, as nft takes them."""

from __future__ import annotations

import subprocess

from nova_lite.base import exceptions


def run(text: str) -> str:
    """Have it done, all or nothing, in one transaction of the kernel; what nft has to say against it."""
    try:
        result = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"nft cannot be run: {error.strerror}"
    return f"nft says {' '.join(result.stderr.split())}" if result.returncode else ""


def apply(text: str) -> None:
    """`run`, unless there is nothing to be done; raises `VirtDriverError`."""
    if text and (complaint := run(text)):
        raise exceptions.VirtDriverError(reason=f"the packet filters of this host: {complaint}")
