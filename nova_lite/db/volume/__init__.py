"""Volumes, and the block devices of servers.

- `volumes`: volumes and snapshots
- `attachments`: servers and clients that have a volume, one or several
- `sharing`: rules of volumes that several servers may have
- `volume_types`: types, and their encryption
- `volume_qos`: quality of service of types
- `volume_keys`: keys of encrypted volumes, wrapped by a master key
- `volume_backups`: backups of volumes
- `volume_tasks`: work of hosts on files of volumes
- `volume_transfers`: offers of volumes to other projects
- `block_devices`: block devices of servers, and the states of their volumes
- `cinder`: Cinder's volumes of servers
"""
