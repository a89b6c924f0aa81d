"""Audit log: an event for each change through any API, and for each refused request.

Each application is wrapped, whatever the paste file has, so an operator's own pipeline cannot lose the log. An event is
put into a queue in memory. A thread of the API process sends batches of them to the conductor, which stores each event
once. So a request waits for no message.

::

    api/audit/notes.py            what dispatchers tell about a request: route, action, new resource, caller
    api/audit/wrapper.py          WSGI wrapper that makes the event of a request
    api/audit/flood.py            summaries of failures that come in masses
    api/audit/recorder.py         the queue, and its thread
    objects/audit.py              events, as they are sent and stored
    db/upkeep/audit_events.py     rows of events: lists and purge
    api/compute/audit_events.py   ``GET /os-audit-events``
    cmd/manage/audit_log.py       ``nova-lite-manage audit-log``
    conf/audit.py                 options ``[audit]``
"""
