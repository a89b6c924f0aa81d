"""The resources of the compute API, one module each (`servers`, with the most parts, is a package).

A module has up to three sections. ``schemas``: the JSON schemas of bodies and query strings, by microversion.
``routes``: an `nova_lite.api.http.wsgi.Extension` with its routes and handlers. ``views``: functions from typed objects
to the JSON of the request's microversion. Modules have Nova's names where Nova has the resource. An entry point in
setup.cfg (``nova_lite.api.v21.extensions``) registers each extension.

A handler runs after the dispatcher has enforced its policy rule and validated the request. It calls the conductor, for
most requests once, and returns a view.

Shared parts: `schema_types`, `view_helpers`; `ssh_keys` and `certificates` for key pairs.
`nova_lite.api.conductor_client` batches reads and caches flavors. `nova_lite.compute.api` batches creates and deletes.
"""
