"""Hypervisor drivers.

- `driver`: `ComputeDriver`: the interface that a compute daemon calls, and the types that it passes
- `libvirt`: guests under KVM, or emulated, by libvirt and qemu
- `fake`, `fake_rules`: a driver without a hypervisor, and rules by which its guests are slow or fail
- `configdrive`: config drives: the ISO images with a guest's metadata
- `images`: qemu-img: inspect, convert and resize image files
- `rbd`: the program ``rbd``, for images in Ceph
- `host_counters`, `host_health`: counters and signs of failure of a Linux host
- `topology`: the parts of a host's NUMA cells that its operator makes available

``[DEFAULT] compute_driver`` names a driver by its entry point in ``nova_lite.virt.drivers``.
"""
