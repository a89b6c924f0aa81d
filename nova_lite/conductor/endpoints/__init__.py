"""RPC methods of the conductor; `nova_lite.conductor.manager` puts them together."""
