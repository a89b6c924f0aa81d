"""The conductor's part of the volume service.

- `endpoints`: RPC methods about volumes
- `tasks`: sends work on the files of volumes to hosts, and records its end
- `backups`: RPC methods about backups of volumes
- `cinder_endpoints`: RPC methods about Cinder's volumes
- `cinder`: brings Cinder's volumes into the state that the rows describe
"""
