# The entry in /etc/openstack/clouds.yaml that clients find the cloud by. Sourced, never run.

CLOUDS_YAML=/etc/openstack/clouds.yaml

api_url() {
    echo "http://127.0.0.1:$API_PORT/v2.1"
}

add_cloud() {
    "$VENV/bin/python" "$TOP/devstack/lib/clouds.py" add "$CLOUDS_YAML" "$CLOUD" "$(api_url)"
}

# Needs the virtual environment, so it comes before its removal.
remove_cloud() {
    [[ -f $CLOUDS_YAML && -x $VENV/bin/python ]] || return 0
    "$VENV/bin/python" "$TOP/devstack/lib/clouds.py" remove "$CLOUDS_YAML" "$CLOUD"
    rmdir --ignore-fail-on-non-empty "$(dirname "$CLOUDS_YAML")"
}
