"""The web page: files for browsers, and a door to the cloud's own APIs at the same origin.

- `app`: the WSGI application
- `files`: what the browser loads; the sources are in ``tools/page``
- `sessions`: log-ins, whose tokens stay in a cookie that scripts cannot read
- `providers`: log-ins by OpenID Connect providers
- `rights`: what the caller's token allows
- `daemons`: the versions of the daemons
- `configuration`: problems of this daemon's configuration files
- `cloud_images`: well-known images of distributors
- `events`: the stream of changes
- `consoles`: the console proxies that the page may reach
"""
