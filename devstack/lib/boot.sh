# The first server of the cloud: proof that all of it works. Sourced, never run.

FIRST_SERVER=nova-lite-first

boot_first_server() {
    local console_text=
    [[ $VIRT_DRIVER == fake ]] || console_text=nova-lite-guest:
    OS_CLIENT_CONFIG_FILE=$CLOUDS_YAML "$VENV/bin/python" "$TOP/devstack/lib/first_server.py" \
        "$CLOUD" "$FIRST_SERVER" "$(guest_image)" "$FIRST_FLAVOR" $console_text >"$LOGS/first-server.txt"
    cat "$LOGS/first-server.txt"
}

show_first_server() {
    sed 's/^/    /' "$LOGS/first-server.txt"
}

# Every compute host has to have reported, or the first server might find no valid host.
hosts_are_up() {
    local name up
    up=$(curl --silent --show-error --fail --max-time 10 -H 'X-Auth-Token: admin:admin' "$(api_url)/os-services")
    for name in $(compute_services); do
        "$VENV/bin/python" -c '
import json, sys
services = {one["host"]: one["state"] for one in json.loads(sys.argv[1])["services"] if "compute" in one["binary"]}
sys.exit(None if services.get(sys.argv[2]) == "up" else "compute host %s is not up: %s" % (sys.argv[2], services))
' "$up" "$(compute_host "$name")"
    done
}
