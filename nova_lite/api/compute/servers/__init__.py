"""``/servers``: create, list, show, update, delete, and rebuild.

- `routes`: the handlers.
- `schemas`: the schemas of bodies and query strings, by microversion.
- `create`, `block_devices`: from the body of a create to a `nova_lite.objects.CreateRequest`.
- `listing`: from the query string of a list to filters and a sort order.
- `update`, `rebuild`: from a body to changes of the server.
- `view`, `image_properties`: from an instance to its JSON. Other resources that show servers use them as well.

Other server actions have modules of their own in `nova_lite.api.compute`, or are in its ``server_actions``.
"""
