# A Keystone of this cloud's own, on SQLite and loopback: AUTH=keystone. Sourced, never run.

keystone_manage() {
    as_service keystone "$OPENSTACK/bin/keystone-manage" --config-dir "$ETC/keystone" "$@"
}

write_keystone_config() {
    make_openstack_directories keystone
    config_file "$(service_user keystone)" keystone/keystone.conf <<CONFIG
[DEFAULT]
public_endpoint = http://127.0.0.1:$IDENTITY_PORT

[database]
connection = sqlite:///$STATE/keystone/keystone.sqlite

[fernet_tokens]
key_repository = $STATE/keystone/fernet

[fernet_receipts]
key_repository = $STATE/keystone/fernet

[credential]
key_repository = $STATE/keystone/credential
CONFIG
    echo "$IDENTITY_PORT" | install -m 0644 /dev/stdin "$ETC/keystone/port"
}

# Tables, keys and the admin, once; then it runs.
set_up_keystone() {
    local keys
    stop_service keystone
    if [[ ! -e $STATE/keystone/bootstrapped ]]; then
        keystone_manage db_sync
        for keys in fernet credential; do
            keystone_manage "${keys}_setup" --keystone-user "$(service_user keystone)" --keystone-group "$(service_user keystone)"
        done
        OS_BOOTSTRAP_PASSWORD=$(secret admin-password) keystone_manage bootstrap \
            --bootstrap-region-id "$REGION" --bootstrap-public-url "$(auth_url)"
        touch "$STATE/keystone/bootstrapped"
    fi
    start_services keystone
}

# Projects, users and the catalog. What is there already is only brought up to date.
fill_keystone() {
    local name
    for name in admin demo nova-lite glance cinder neutron; do
        secret "$name-password"
        echo
    done | "$VENV/bin/python" "$TOP/devstack/lib/fill_keystone.py" \
        "$(auth_url)" "$REGION" "$(api_url)" "http://127.0.0.1:$IMAGE_PORT" "http://127.0.0.1:$NETWORK_PORT" \
        "$([[ $VOLUMES != cinder ]] || volume_url)" "$NETWORK"
}
