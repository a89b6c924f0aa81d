"""The web page: files for browsers, and a door to the cloud's own APIs at the same origin.

Parts: `app` (the WSGI application), `files` (what the browser loads), `sessions` (log-ins, whose tokens stay in a
cookie that scripts cannot read), `rights` (what the caller's token allows), `consoles` (the proxies that the page may
reach). The sources of the files are in ``tools/page``.
"""
