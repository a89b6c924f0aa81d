"""Random losses of hosts with automatic evacuation: ``devstack/failover.sh --nemesis MINUTES``.

A nemesis takes power, links in each direction, disks and daemons away, while clocks run at wrong rates. Each guest
counts on a disk that all hosts share, and notices if another program writes there.
"""
