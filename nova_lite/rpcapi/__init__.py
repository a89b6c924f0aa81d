"""RPC methods that daemons call: one Protocol for each service. Both sides import it, and neither the other side.

`nova_lite.rpc` makes the typed client and the server of a Protocol.

- `conductor`: to the conductor, which alone has access to the database
- `scheduler`: to the schedulers
- `compute`: to the compute daemon of a host
"""
