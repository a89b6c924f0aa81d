"""HTTP machinery of all APIs.

- Processes and connections: `prefork` (worker processes), `server` (its loop), `connection`, `channel` (plain or TLS),
  `limits` of clients, `admission` (threads and overload), `responses`, `transfers` (large bodies). The parser is
  `nova_lite.daemon.http_parser`.
- Applications: `deploy` loads the paste file. `router` finds the routes of a URL, and `wsgi` dispatches the request to
  a handler of the compute API. `rest` is the base of the other APIs.
- Parts of a request: `microversions`, `validation`.
- Documents: `versions`, and `inventory`, from which `openapi`, `reference` and `operations_page` are made.

A request passes `server`, the filters of its pipeline, `router`, and `wsgi.ResourceDispatcher`. The dispatcher selects
the version, enforces the policy rule, validates query and body, and calls the handler. It turns the result, or an
exception, into a response.
"""
