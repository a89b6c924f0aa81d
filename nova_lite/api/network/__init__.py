"""HTTP half of the network service. `nova_lite.network` lists all of its parts."""
