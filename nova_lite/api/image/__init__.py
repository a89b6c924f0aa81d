"""HTTP half of the image service. `nova_lite.image` lists all of its parts."""
