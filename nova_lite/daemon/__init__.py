"""Parts that every daemon needs. A module of `nova_lite.cmd` makes a daemon of them.

- `service`: `Daemon`, the life of a process: logging, signals, start with retries, periodic tasks, RPC servers, stop
- `health`: the HTTP server of /metrics, /healthz and /readyz
- `watchdog`: reports to systemd that the daemon works
- `sockets`, `kept_sockets`: listening sockets, TLS, and sockets that systemd keeps
- `http_parser`: strict parser of HTTP/1 requests
- `certificates`: watches how long certificates are valid
- `cpu_affinity`: keeps all threads of a conductor on one CPU
- `notifications`: oslo.messaging notifications for other systems
"""
