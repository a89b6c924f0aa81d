#!/bin/bash
# Ends exactly the processes that up.sh has started, and drops their databases and broker host.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/settings.sh"
alive() { # PID: is it still one of ours, and not a new process with the same number?
    [[ -r /proc/$1/cmdline ]] && tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -q "$ROOT/"
}
pids=()
for file in "$RUN"/*.pid; do
    [[ -e $file ]] || continue
    pid=$(<"$file")
    # Each was started as a session of its own: its children have its session.
    for member in $(ps -o pid= -s "$pid"); do
        if alive "$member"; then pids+=("$member"); fi
    done
done
((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
end=$((SECONDS + 20))
for pid in "${pids[@]}"; do
    while alive "$pid"; do
        if ((SECONDS >= end)); then kill -9 "$pid" 2>/dev/null || true; fi
        sleep 0.1
    done
done
rm -f "$RUN"/*.pid "$RUN/cloud.env"
for name in "${DATABASES[@]}"; do echo "DROP DATABASE IF EXISTS novaref_$name;"; done | mysql
rabbitmqctl -q delete_vhost nova-ref >/dev/null 2>&1 || true
