"""Fence agents: switch a host's power off, and read its power. Other packages add agents by entry points.

The namespace is ``nova_lite.fence``. `nova_lite.fence.agent` is the interface, `nova_lite.fence.methods` uses it.
"""
