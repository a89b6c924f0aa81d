"""Properties of this machine for guests and the scheduler.

``kvm`` finds out whether KVM works, ``cpu_model`` chooses the CPU that guests see, ``host_topology`` reads the NUMA
cells and ``host_traits`` the traits. ``inventory`` builds the resources that the host reports. ``cpu_monitor`` measures
the load of its CPUs.
"""
