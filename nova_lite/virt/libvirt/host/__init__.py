"""Properties of this machine for guests and the scheduler.

- `machine`: the machine as an ability: it finds out the following, and reports the inventory
- `cpu_model`: the CPU model of guests, by ``[libvirt] cpu_mode`` and related options
- `guest_cpus`: processors of guests: the largest one, that of a running guest, and their comparison
- `cpu_monitor`: load of the host's CPUs, with Nova's names, for the scheduler's metrics filter and weigher
- `host_topology`: the host's NUMA cells, from libvirt's capabilities
- `host_traits`: the traits of this host: hardware that its libvirt and qemu can give to guests
- `inventory`: inventory of this hypervisor: resources in the scheduler's units
- `pool_room`: room in the pool of Ceph that has the guests' disks
- `pci_devices`, `mediated_devices`: PCI devices and vGPUs of this machine that guests may have
- `kvm`: probe whether KVM really works on this machine
"""
