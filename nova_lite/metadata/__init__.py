"""Metadata service: what a guest reads about itself. It stands in for nova-api-metadata.

Guests read it at http://169.254.169.254 or from their config drive. With ``[network] backend = neutron``, Neutron's
metadata agent forwards and signs the requests.

::

    metadata/documents.py     the documents, for both ways
    metadata/vendordata.py    vendor data of the operator
    metadata/network_sockets.py   listening sockets on guests' networks, on their way to APIs
    compute/metadata_sockets.py   passes these sockets to APIs
    api/metadata/networks.py  accepts on these sockets
    api/metadata/app.py       the metadata API
    api/metadata/callers.py   finds the server that sends a request
    virt/configdrive.py       config drives, on compute hosts
    conf/metadata.py          options, in ``[api]`` and ``[neutron]``
    db/servers/instances.py   SQL: servers by their network and address
    objects/instance.py       Instance

Tests: ``tests/unit/metadata``, ``tests/unit/api/metadata``, ``tests/functional/test_metadata.py``.
"""
