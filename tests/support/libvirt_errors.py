"""Errors of libvirt."""

from __future__ import annotations

from typing import Any

import libvirt


def libvirt_error(code: int, origin: int = libvirt.VIR_FROM_QEMU, message: str = "it\nbroke") -> libvirt.libvirtError:
    error = libvirt.libvirtError("x")
    error.err = (code, origin, message, 2, "", "", "", 0, 0)
    return error


def failing(error: Exception) -> Any:
    def method(*_: Any) -> None:
        raise error

    return method
