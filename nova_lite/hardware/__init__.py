"""Hardware of guests, as flavors and images request it.

`table` has a definition for each extra spec and image property that Nova documents for libvirt: honoured, refused, or
not for this hypervisor. `request` reads a flavor and an image with the definitions, and `settings` resolves them to the
`Hardware` that a driver builds. The API and the conductor refuse by the same definitions, so no accepted setting is
without effect.

::

    hardware/definition.py   form of a definition
    hardware/table.py        the definitions
    hardware/request.py      values of a flavor and an image
    hardware/topology.py     CPU topology
    hardware/aarch64.py      settings of guests of another architecture
    hardware/numa.py         request for CPUs and memory of the host
    hardware/hotplug.py      vCPUs and memory that a running guest can get
    hardware/mem_encryption.py   encryption of memory
    hardware/guest.py        Hardware of a guest
    hardware/settings.py     from the request to Hardware
    hardware/traits.py       traits of hosts
    hardware/fitting.py      placement in the NUMA cells of a host
    hardware/pci.py          aliases, and the choice of PCI devices and vGPUs
    hardware/continuing.py   obstacles of a running guest on another host
    hardware/baseline.py     largest processor that several hosts have
"""

from __future__ import annotations

from nova_lite.hardware.guest import DEFAULT, OPTIONAL, REQUIRED, Hardware, RescueDisk
from nova_lite.hardware.request import check_extra_spec
from nova_lite.hardware.settings import (
    check_disks,
    check_rescue,
    encrypts_disks,
    has_tpm,
    is_arm,
    numa_of,
    resolve,
    root_device,
)
