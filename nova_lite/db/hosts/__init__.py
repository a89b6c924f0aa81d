"""Compute hosts.

- `services`: daemons, and whether they are alive
- `hosts`: reports of hosts, and their state for schedulers
- `compute_nodes`: inventories
- `aggregates`: aggregates, and their changes
- `host_aggregates`: what aggregates set for their hosts
- `placement`: inventories and allocations as the Placement API shows them
- `numa_claims`, `pci_claims`: claims of CPUs and memory of NUMA cells, and of PCI devices
- `balance`: measured load, and moves that relieve hosts
- `host_health`: problems of hosts' machines
- `host_storage`: directories of disks that hosts share
- `joins`: tokens and requests of machines that become hosts
- `leases`: leases of hosts that fence themselves, and records of hosts whose power is off
- `evacuations`: protected servers of lost hosts, which run again elsewhere
- `crashes`: protected servers whose guests have crashed
- `unknown_domains`: results of the comparison of domains
"""
