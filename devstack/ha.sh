#!/bin/bash
# ha.sh [--only TEXT]...: three controllers and two hosts as containers with systemd, under load, while each controller is killed, cut off and paused, and a
# broker and a database's node are lost. It prints failed requests and seconds as a table, and ends (half an hour; docs/howto/high-availability.md).
# It needs root, systemd-nspawn, and what devstack/test.sh installs. Nothing of it reaches this machine's own interfaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $EUID == 0 ]] || { echo "ha.sh needs root." >&2; exit 1; }
for program in haproxy keepalived mariabackup; do
    command -v "$program" > /dev/null || { echo "ha.sh needs haproxy, keepalived and mariadb-backup: apt install haproxy keepalived mariadb-backup" >&2; exit 1; }
done
PYTHON=.venv/bin/python
[[ -x $PYTHON ]] || PYTHON=$(command -v python3)
exec "$PYTHON" -W ignore -m tests.integration.systemd.failover "$@"
