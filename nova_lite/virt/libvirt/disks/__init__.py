"""Disks and volumes of guests.

``image_cache`` fetches each image once per host. ``disks`` makes a guest's disks: ``overlays`` of cached images, and
formatted ephemeral and swap disks. ``moved_disks`` adapts the disks of a guest that came from another host, which
``transfer`` copied; ``offers`` checks what another host may fetch. ``snapshots`` makes images of disks, and
``freezes`` freezes guests' file systems meanwhile. ``volumes`` attaches and detaches volumes, ``volume_copies`` copies
their content while guests use them. ``volume_files`` moves a guest to another file of a volume of Cinder's and merges
files, and ``volume_chains`` checks such files. ``secrets`` has the passphrases of encrypted volumes for libvirt.
``disk_usage`` counts the bytes that all instances use.
"""
