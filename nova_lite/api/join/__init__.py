"""The join API: with a token, a machine becomes a host; and hosts fetch the signed list of trusted keys.

- `app`: WSGI application of the join API
- `images`: images for hosts that joined: they read the store, and send the images that they make of servers

Parts elsewhere: `nova_lite.base.join_requests` (tokens), `nova_lite.db.hosts.joins` (records),
`nova_lite.cmd.registrar` (accounts, certificates, and signatures), `nova_lite.rpc.trust` (what hosts believe),
`nova_lite.cmd.setup.compute` (the machine).
"""
