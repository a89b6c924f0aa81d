"""The qemu driver: guests of qemu by QMP, without libvirt.

- `driver`: the registry of its abilities
- `host`: parts that most abilities need, and the state, start and end of a guest
- `guest`: a guest as it is stored
- `guests`, `power`, `consoles`, `snapshots`, `machine`, `statistics`: abilities, and the files of abilities
- `hot_plug`: volumes and interfaces of guests
- `networks`: bridges, tap devices and filters
- `processes`, `qmp`, `command_line`, `console_logs`: qemu's processes, monitor, arguments and logs

From `nova_lite.virt.libvirt` it takes parts that need no libvirt: records and disks of instances, the image cache,
filters of traffic, and the probe of KVM. An import contract checks that.
"""
