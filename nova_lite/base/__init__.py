"""Foundations that every other package may import. Nothing here imports another package of nova_lite.

- `exceptions`: every error that nova_lite raises on purpose, one module per subject
- `concurrency`, `batching`, `futures`, `stop_event`: eventlet or native threads, batches of requests, and responses
  that come later
- `context`: the caller of a request, and its project
- `metrics`, `tracing`, `structured_logs`, `journal`: what a daemon shows: metrics, traces, and logs
- `clock`, `randomness`, `threads`, `ids`: the seams from which time, random numbers, threads and ids come
- `timing`: times that no option sets
- `failpoints`, `faults`: named points at which tests inject faults, and the seams at which they are installed
- `files`, `trees`, `ofd_locks`, `disk_room`, `directory_users`: files and directories
- `ip`, `machine_networks`, `timed_socket`, `unix_sockets`, `response_body`: addresses, sockets, and responses
- `key_files`, `sealing`, `master_keys`, `host_certificates`: keys, secrets and certificates
- `join_requests`, `host_requests`: signed requests of machines that join, and of hosts
- `cpu_sets`, `patterns`, `plugins`, `version`, `memory`, `markdown`: small helpers
"""
