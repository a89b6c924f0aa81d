"""HTTP machinery of all APIs. The parser is `nova_lite.daemon.http_parser`.

- `prefork`, `server`, `connection`, `channel`: processes and connections: workers, their loop, and TLS
- `limits`, `admission`, `cpu_limit`, `rate_limit`, `proxy_protocol`: limits of clients and requests, and the address
  of the client
- `responses`, `transfers`, `drain`: heads and bodies of responses, large bodies, and the stop of an API
- `deploy`: loads the paste file
- `router`: finds the routes of a URL
- `wsgi`: dispatches a request to a handler of the compute API
- `rest`, `bodies`, `refusals`: the base of the other APIs, the objects of their requests, and their refusals
- `microversions`, `validation`, `json_text`: parts of a request
- `languages`: texts of errors in the user's language
- `versions`: version documents
- `inventory`: the list of all routes, from which documents are made
- `openapi`, `service_openapi`, `reference`, `operations_page`: documents

A request passes `server`, the filters of its pipeline, `router`, and `wsgi.ResourceDispatcher`. The dispatcher selects
the version, enforces the policy rule, validates query and body, and calls the handler. It turns the result, or an
exception, into a response.
"""
