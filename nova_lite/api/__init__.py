"""The REST APIs: WSGI applications that authenticate, authorize, and validate requests, and call the conductor.

- `http`: the machinery: server processes, paste pipelines, routing, request and response, microversions, documents
- `middleware`: the filters of the pipelines, authentication among them
- `compute`: the compute API, one module per resource
- `identity`, `image`, `network`, `volume`: small replacements of Keystone, Glance, Neutron, and Cinder
- `dns`, `load_balancer`, `key_manager`: small replacements of Designate, Octavia and Barbican, as wings
- `placement`: the Placement API, to read
- `metadata`: the metadata service for guests
- `join`: the API by which machines become hosts
- `page`: the web page
- `audit`: the audit log of all APIs
- `conductor_client`: the conductor client of an API process: batches reads, shares objects, and caches flavors
- `shared_objects`: objects of the conductor's replies that requests share, with the views that were made of them

The path of a request to the compute API::

    socket                  http.server: a thread gets the request when it has arrived
    -> paste pipeline       http.deploy loads it; middleware: request id, faults, size limit, authentication
    -> http.router          finds the routes of the URL
    -> http.wsgi            the dispatcher: version, policy rule, schemas
    -> compute.RESOURCE     the handler calls the conductor (or nova_lite.compute.api), and returns a view
"""
