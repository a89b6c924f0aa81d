"""HTTP machinery shared by the APIs: server, WSGI resources, routing, validation, microversions, documents."""
