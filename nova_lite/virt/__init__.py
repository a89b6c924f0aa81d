"""Hypervisor drivers.

- ``driver``: `ComputeDriver`: the interface that a compute daemon calls, and the types that it passes
- ``fake``: a driver without a hypervisor, for tests and for trying out the control plane
- ``libvirt``: guests under KVM, or emulated, by libvirt and qemu
- ``configdrive``: config drives: the ISO images with a guest's metadata
- ``images``: qemu-img: inspect, convert and resize image files
- ``rbd``: the program ``rbd``, for images in Ceph
- ``topology``: the parts of a host's NUMA cells, CPUs and pages that guests may use

``[DEFAULT] compute_driver`` names a driver by its entry point in ``nova_lite.virt.drivers``.
"""
