"""The compute service: one daemon per host, which executes commands on the host's guests.

The path of a command: the conductor casts it to the host (`nova_lite.rpcapi.compute`). `ComputeManager` (``manager``)
starts a job (``jobs``), which checks that the host is registered (``registration``). `CommandExecutor` (``executor``)
records the command in the fencing token store (``fencing``), waits for the instance's lock, and calls the handler of
the step (``operations``), which calls the driver (`nova_lite.virt`). The result is recorded, and then reported to the
conductor until that accepts it (``reports``, ``report_batcher``). A build takes the same path with `Builder`
(``operations.create``).

The fencing rule: before a host reports a failed build, or confirms that an instance will not appear here, it revokes
the generation on disk. A revoked generation is never built here again, so another host may build the instance.

``reconciler`` compares the domains with the database at start and periodically, and after each boot (``host_boot``).
``heartbeat`` reports the inventory, ``claims`` reserves resources, ``port_filters`` keeps packet filters current.
``api`` is the internal interface that the REST layer uses; it runs in the API daemon.
"""
