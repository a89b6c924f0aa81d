"""Data and rules of backups, without database and daemons.

- `chain`: backups in a repository with the increments that belong to them: reads them, and checks them
- `disk_data`: data of a disk as one stream: a header with the extents that have data, and then these data
- `disk_parts`: several disks of a server in one stream: takes them apart, and puts them together
- `files`: single files of a disk image, read by a process that can do nothing else
- `qcow2_file`: writer of qcow2 files (version 3, clusters of 64 KiB) from the data of a disk
- `repository`: repository of backups: restic stores streams deduplicated and encrypted
- `retention`: choice of the backups that a policy keeps
- `schedule`: times of a backup policy's schedule and window
- `site_journal`: journal of replicated servers: which site may run a server, and which backups it begins with
- `watched_process`: process that is ended, with its children, if it stands still
"""
