"""What flavors and images say of a guest's hardware, and what comes of it.

`table` has a row for each extra spec and image property that Nova documents for libvirt: honoured, refused, or not for
this hypervisor. `asked` reads a flavor and an image by the rows; `settings` makes of that the `Hardware` that a driver
gives the guest. The API and the conductor refuse by the same rows, so nothing that is accepted is forgotten.
"""

from __future__ import annotations

from nova_lite.hardware.request import check_extra_spec
from nova_lite.hardware.settings import (
    DEFAULT,
    OPTIONAL,
    REQUIRED,
    Hardware,
    RescueDisk,
    check,
    check_rescue,
    numa_of,
    resolve,
    root_device,
)

__all__ = [
    "DEFAULT",
    "OPTIONAL",
    "REQUIRED",
    "Hardware",
    "RescueDisk",
    "check",
    "check_extra_spec",
    "check_rescue",
    "numa_of",
    "resolve",
    "root_device",
]
