"""Execution of nft, which loads packet filters."""

from __future__ import annotations

import subprocess

from nova_lite.base import exceptions


def run(text: str) -> str:
    """Execute the commands in one kernel transaction. Return nft's error message, empty on success."""
    try:
        result = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"nft cannot be run: {error.strerror}"
    return f"nft: {' '.join(result.stderr.split())}" if result.returncode else ""


def apply(text: str) -> None:
    """Execute the commands, if any. Raises `VirtDriverError`."""
    if text and (error := run(text)):
        raise exceptions.VirtDriverError(reason=f"the packet filters of this host cannot be loaded: {error}")
