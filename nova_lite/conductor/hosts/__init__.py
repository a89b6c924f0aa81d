"""The conductor's work for compute hosts.

- `heartbeats`: writes heartbeats, and renews the leases of commands in batches
- `publisher`: publishes changes of hosts to the schedulers
- `domains`: compares the domains of a host with the database
- `crashes`: records crashes of guests, and starts protected servers again
- `fencing`: fences silent hosts
- `evacuation`: evacuates protected servers of lost hosts
- `room`: counts the room for the servers of lost hosts
- `health`: drains hosts whose machines have a problem
- `balancing`: moves servers off hosts under pressure
- `retirement`: retires a host that will not come back
"""
