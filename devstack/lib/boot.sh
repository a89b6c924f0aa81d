# The first server of the cloud: proof that all of it works. Sourced, never run.

FIRST_SERVER=nova-lite-first

boot_first_server() {
    local console_text=
    [[ $VIRT_DRIVER == fake ]] || console_text=nova-lite-guest:
    OS_CLIENT_CONFIG_FILE=$CLOUDS_YAML "$VENV/bin/python" "$TOP/devstack/lib/first_server.py" \
        "$CLOUD" "$FIRST_SERVER" "$(guest_image)" "$FIRST_FLAVOR" $console_text >"$LOGS/first-server.txt"
    cat "$LOGS/first-server.txt"
}

# A fake guest has no screen.
console_hint() {
    [[ $VIRT_DRIVER == fake ]] ||
        echo "    openstack --os-cloud $CLOUD console url show --novnc $FIRST_SERVER       (opened in a browser on this machine)"
}

page_hint() {
    [[ $AUTH != standalone ]] ||
        echo "    http://127.0.0.1:$PAGE_PORT/       (the web page; $CLOUDS_YAML has users and passwords)"
}

show_first_server() {
    sed 's/^/    /' "$LOGS/first-server.txt"
}

# Every compute host has to have reported, or the first server might find no valid host.
hosts_are_up() {
    local name services
    services=$(listed service host binary state)
    for name in $(compute_services); do
        grep -qxF "$(compute_host "$name") nova-compute up" <<<"$services" || {
            printf 'compute host %s is not up:\n%s\n' "$(compute_host "$name")" "$services"
            return 1
        }
    done
}
