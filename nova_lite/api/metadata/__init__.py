"""HTTP half of the metadata service. `nova_lite.metadata` lists all of its parts."""
