"""Hypervisor drivers.

- `abilities`: the interface that a compute daemon calls, a protocol for each ability, and the types that it passes
- `driver`: `ComputeDriver`: a hypervisor as a registry of its abilities
- `libvirt`: guests under KVM, or emulated, by libvirt and qemu
- `qemu`: guests of qemu by QMP, without libvirt
- `fake`, `fake_disks`: a driver without a hypervisor: its abilities, and the abilities that work on disks
- `fake_hypervisor`: the files of a fake host, its delays and its failures
- `fake_rules`: rules by which fake guests are slow or fail
- `configdrive`: config drives: the ISO images with a guest's metadata
- `images`: qemu-img: inspect, convert and resize image files
- `rbd`, `rbd_pool`: the program ``rbd``, and images in a pool of Ceph
- `host_counters`, `host_health`: counters and signs of failure of a Linux host
- `topology`, `device_specs`, `vgpus`: the NUMA cells, PCI devices and vGPUs of a host that its operator makes available

``[DEFAULT] compute_driver`` names a driver by its entry point in ``nova_lite.virt.drivers``.
"""
