"""A compute control plane: the OpenStack Compute API on libvirt.

``docs/contributing/walks.md`` follows five requests through the packages. ``docs/reference/glossary.md`` defines words
such as generation, claim, allocation, and lease.
"""
