"""The conductor's part of the volume service.

- `endpoints`: RPC methods about volumes, and the dispatch of work to hosts
- `backups`: RPC methods about backups of volumes
- `cinder`: brings Cinder's volumes into the state that the rows describe
"""
