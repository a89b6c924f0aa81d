"""DNS service: zones and record sets of projects. It stands in for the part of Designate that clients use.

It is a wing: only a cloud with ``dns`` in ``[DEFAULT] wings`` loads it (`nova_lite.conductor.wings`).

- `objects`: zones, record sets, and queries of lists
- `records`: checks of names and records
- `transfer`: sends record sets to the operator's name server by dynamic updates

Elsewhere::

    api/dns/              Designate's v2 API
    conductor/dns/        methods of users, and the transfer
    db/dns/               SQL: zones, record sets, names of floating addresses
    policies/dns.py       rules
    conf/dns.py           options ``[dns]``
"""
