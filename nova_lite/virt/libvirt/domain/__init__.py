"""Guests as libvirt domains.

- `guests`, `launch`: guests that are created, defined again, started and destroyed
- `power`: power, pause, suspend, and the way into and out of a rescue
- `cold_moves`, `live_moves`: moves of guests to other hosts
- `hotplug`, `hotplug_xml`: vCPUs and memory of running guests
- `agents`: passwords and interrupts
- `guest_consoles`: consoles by instance
- `guest_xml`, `hardware_xml`, `numa_xml`, `mem_encryption_xml`, `pci_xml`, `shares_xml`: the XML of a guest: devices,
  requested hardware, CPUs and memory, encryption of memory, devices and directories of the host
- `consoles`, `console_log`: VNC, SPICE and serial ports, and the output of the serial console
- `diagnostics`, `statistics`: counters of running guests
- `domains`: defines, starts, stops and removes the domains of this host
- `events`: changes of power states, and failures of guests
- `guest_devices`: places of a guest's devices on its buses
- `hardware_page`: generator of ``docs/reference/hardware.md``, which runs the example of each definition
- `live_migration`: libvirtd at the source moves a running guest to libvirtd at the destination
- `points`, `clones`: snapshot points, and layers for clones
- `shares`: directories of the host that guests mount
- `rescue`: guests that boot from a rescue image, with their own disks attached
"""
