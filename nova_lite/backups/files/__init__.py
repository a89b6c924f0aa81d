"""Single files of a disk image, read by a process that can do nothing else.

A guest has written the disk, so each byte of it may be hostile. No kernel mounts it, and no parser in C reads it.

- `client`: starts a reader for an image's file, and checks what it answers; for the API
- `reader`: the process: one request, a line of JSON, and then data; it imports the standard library alone
- `sandbox`: limits of the process, and a filter that leaves it no system calls but those on open files
- `disk`: bytes of a disk: raw or qcow2, and its partitions
- `ext`, `xfs`, `ntfs`: file systems, read only
- `tree`: paths, lists and archives of any of these file systems
"""
