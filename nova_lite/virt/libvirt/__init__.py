"""The libvirt driver.

- `driver`: `LibvirtDriver`: the registry of the abilities (`nova_lite.virt.abilities`), which makes them
- `context`: the parts that most of them need: options, connection, domains and records
- `connection`: the connection to libvirtd, and the translation of its errors
- `records`: the directory of each instance, and the list of its interfaces
- `domain`: guests: their XML, power states, events, consoles, rescue and live migration
- `disks`: disks and volumes: image cache, overlays, snapshots, and copies from host to host
- `net`: bridges, DHCP, tunnels, packet filters, and floating addresses
- `host`: this machine: KVM, CPU model, NUMA cells, traits, inventory and load
"""
