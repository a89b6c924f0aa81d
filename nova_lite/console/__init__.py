"""Consoles of guests in a browser: the tokens of their URLs, and the proxies that open them.

- `tokens`: makes tokens and URLs; the database stores only a token's hash
- `daemon`: the daemons nova-lite-novncproxy, nova-lite-spicehtml5proxy and nova-lite-serialproxy
- `server`: their HTTP server, which serves the pages of noVNC or spice-html5, and WebSockets
- `opening`: takes the token at the conductor and connects to the console on its host
- `host_tls`: TLS on the way to the hosts
- `rfb`: the beginning of VNC's protocol, with a host and with a browser
- `origins`: checks which web page opens a console
- `pump`: copies bytes between browser and console
"""
