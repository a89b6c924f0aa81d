"""Disks and volumes of guests.

- `image_cache`, `cached_images`, `overlays`, `reflinks`, `disks`: images that are fetched once per host, and disks made
  of them
- `layers`: frozen disks of servers that were cloned
- `moved_disks`, `left_disks`, `marks`: disks that came from another host, or that a lost host has left in a shared
  directory
- `pool_disks`, `pool_marks`: disks in a pool of Ceph, and hosts that share it
- `shared_disks`: the ability to share disks, and checks for missing files
- `transfer`, `offers`, `disk_server`, `tls_pipe`: copies of disks from host to host
- `snapshots`, `freezes`, `incremental`: images and backups of disks
- `volumes`, `volume_copies`, `volume_files`, `volume_chains`: attached volumes, their copies, and files of Cinder's
  volumes
- `encrypted_disks`: disks that only their guests read
- `secrets`, `rbd_watchers`, `disk_locks`: passphrases, and protection from a second user
- `tpm_states`, `point_files`: states of TPMs of guests that move, and files of snapshot points
- `disk_usage`: bytes that all instances use
"""
