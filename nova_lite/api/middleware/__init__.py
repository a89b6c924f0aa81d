"""Filters of the paste pipelines, between the HTTP server and the router.

The paste file (``etc/nova-lite/api-paste.ini``) orders them, outermost first:

- `oslo`: cross-origin requests, proxy headers, and the limit of the body's size, all from oslo.middleware.
- `request_id`: gives the request an id and logs it.
- `fault_wrap`: turns every exception into a JSON fault.
- `auth`, `keystone`, `standalone`: authenticate the caller. ``[api] auth_strategy`` selects one of them. It puts the
  caller's `RequestContext` into the WSGI environment under `nova_lite.api.http.wsgi.CONTEXT`.
"""
