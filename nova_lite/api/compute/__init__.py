"""The resources of the compute API, one module each (`servers`, with the most parts, is a package).

A module has up to three sections. ``schemas``: the JSON schemas of bodies and query strings, by microversion.
``routes``: an `nova_lite.api.http.wsgi.Extension` with its routes and handlers. ``views``: functions from typed objects
to the JSON of the request's microversion. Modules have Nova's names where Nova has the resource. An entry point in
setup.cfg (``nova_lite.api.v21.extensions``) registers each extension.

A handler runs after the dispatcher has enforced its policy rule and validated the request. It calls the conductor, for
most requests once, and returns a view.

- `servers`: ``/servers``: create, list, show, update, delete, and rebuild
- `server_actions`: actions of servers without a module of their own
- `evacuate`, `rescue`, `shelve`, `server_images`, `multinic`: other actions of servers
- `server_metadata`, `server_tags`, `server_password`, `server_diagnostics`, `server_shares`, `snapshot_points`,
  `clones`, `ips`: resources below a server
- `usage_history`: what a server or a hypervisor's host has used
- `attach_interfaces`, `volume_attachments`, `consoles`: devices and consoles of a server
- `instance_actions`, `migrations`: the log of a server's actions, and its moves
- `server_groups`, `keypairs`, `flavors`, `flavor_access`, `flavor_extra_specs`, `quotas`, `usage`: resources that
  servers need
- `backup_policies`, `server_backups`: backups of servers
- `hosts`, `hypervisors`, `services`, `aggregates`, `availability_zone`: the machines of the cloud
- `audit_events`: the audit log
- `server_external_events`, `assisted_volume_snapshots`: calls of other services
- `images`, `image_metadata`, `networks`, `security_groups`, `floating_ips`, `volumes`: proxies of other services, for
  old clients
- `extensions`: the extensions of this API
- `schema_types`, `view_helpers`: parts of schemas and views that resources share
- `ssh_keys`, `certificates`: keys and certificates of key pairs

`nova_lite.api.conductor_client` batches reads and caches flavors. `nova_lite.compute.api` batches creates and deletes.
"""
