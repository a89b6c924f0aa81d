"""Hypervisors: the driver interface, its fake, and libvirt."""
