"""The version of nova_lite, and the functions that oslo.reports expects of it.

It comes from the tags of the repository when a package is built (docs/adr/0022-packages.md), and from the metadata of
the installed package here. A running daemon keeps its version while a newer package is installed.
"""

from __future__ import annotations

from importlib import metadata

#: Characters that the records of daemons have for their versions. The longest are of changed checkouts.
_LONGEST = 32

#: Version of code that is neither an installed package nor an installed checkout.
UNKNOWN = "0+unknown"


def _installed() -> str:
    try:
        return metadata.version("nova_lite")[:_LONGEST]
    except metadata.PackageNotFoundError:
        return UNKNOWN


VERSION = _installed()


def vendor_string() -> str:
    return "nova_lite"


def product_string() -> str:
    return "nova_lite compute control plane"


def version_string_with_package() -> str:
    return VERSION
