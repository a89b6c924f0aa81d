"""HTTP half of the metadata service. `nova_lite.metadata` lists the parts of the other daemons.

- `app`: the metadata API: the documents of a guest, in EC2's and in OpenStack's tree
- `networks`: networks whose guests a worker serves
- `callers`: identification of the server that sends a request
- `role`: role of the daemon that serves metadata, and what the conductor then lets it read
"""
