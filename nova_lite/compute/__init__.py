"""The compute service: one daemon per host, which executes commands on the host's guests.

The path of a command: the conductor casts it to the host (`nova_lite.rpcapi.compute`). `ComputeManager` (``manager``)
starts a job (``jobs``), which checks that the host is registered (``registration``). `CommandExecutor` (``executor``)
records the command in the fencing token store (``fencing``), waits for the instance's lock, and calls the handler of
the step (``operations``), which calls the driver (`nova_lite.virt`). The result is recorded, and then reported to the
conductor until that accepts it (``reports``). A build takes the same path with `Builder`
(``operations.create``).

The fencing rule: before a host reports a failed build, or confirms that an instance will not appear here, it revokes
the generation on disk. A revoked generation is never built here again, so another host may build the instance.

- `manager`, `host`: RPC methods, and what the jobs of a host share
- `jobs`, `executor`, `operations`, `build_slots`: jobs, the execution of commands, their handlers, and the number of
  builds at a time
- `fencing`: the fencing token store
- `reports`, `conductor_client`: reports to the conductor, repeated and batched
- `registration`, `heartbeat`, `load_reports`, `host_health`: registration, inventory, load and health of the host
- `reconciler`, `host_boot`, `consistency_check`: comparison of the domains with the database, also after a boot
- `self_fencing`, `lease_ways`, `guard`: the lease of the host, and the guard that stops its protected guests
- `claims`: resources that the instances hold, in memory
- `port_filters`: packet filters, routers and tunnels of the host, as the conductor's rows say
- `volumes`: work on the files of volumes; attachments are in ``operations.volumes``
- `user_volumes`: requests to Cinder as the user; it runs in the API daemon
- `wings`, `load_balancer`, `trunks`: parts that the host loads only if an operator wants them
- `consoles`, `image_caching`, `server_metrics`: consoles, cached images, and metrics of servers
- `usage_history`, `usage_file`: the use of the host and its servers over a week, for graphs, and its file
- `metadata_sockets`: sockets of the metadata service, which go to the APIs of the machine
- `api`: the internal interface that the REST layer uses; it runs in the API daemon
"""
