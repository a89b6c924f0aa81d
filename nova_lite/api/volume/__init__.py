"""HTTP half of the volume service. `nova_lite.volume` lists all of its parts."""
