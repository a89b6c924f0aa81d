"""The version of nova_lite, and the functions that oslo.reports expects of it."""

from __future__ import annotations

VERSION = "0.1.0"


def vendor_string() -> str:
    return "nova_lite"


def product_string() -> str:
    return "nova_lite compute control plane"


def version_string_with_package() -> str:
    return VERSION
