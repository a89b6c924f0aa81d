"""RPC methods of the conductor, one small class per noun; `nova_lite.conductor.manager` puts them together."""
