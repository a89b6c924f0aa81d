"""Fence agents: switch a host's power off, and read its power. Other packages add agents by entry points.

The namespace is ``nova_lite.fence``.

- `agent`: the interface of a fence agent, and what agents share
- `agents`: fence agents: Redfish, IPMI, libvirt, and a program of the operator
- `methods`: fence methods of hosts: what the file of fencing says
"""
