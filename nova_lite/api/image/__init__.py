"""Images of a cloud without Glance: the part of Glance's v2 API that clients need, on the local image store."""
