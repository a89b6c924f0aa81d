# The entries in /etc/openstack/clouds.yaml that clients find the cloud by. Sourced, never run.

CLOUDS_YAML=/etc/openstack/clouds.yaml

api_url() {
    echo "http://127.0.0.1:$API_PORT/v2.1"
}

auth_url() {
    echo "http://127.0.0.1:$IDENTITY_PORT/v3"
}

# Passwords go into secure.yaml beside it, which clients read as well and only root may.
add_clouds() {
    if [[ $AUTH != noauth2 ]]; then
        [[ $AUTH == standalone ]] || secret "admin-password" | clouds add-user "$CLOUD" "$(auth_url)" admin # create_users did it
        secret "demo-password" | clouds add-user "$CLOUD-demo" "$(auth_url)" demo
    else
        clouds remove "$CLOUD-demo"
        clouds add "$CLOUD" "$(api_url)"
    fi
}

# clouds VERB NAME [ARGUMENT...]
clouds() {
    local verb=$1
    shift
    "$VENV/bin/python" "$TOP/nova_lite/cmd/setup/clouds.py" "$verb" "$CLOUDS_YAML" "$@"
}

# Needs the virtual environment, so it comes before its removal.
remove_clouds() {
    [[ -d $(dirname "$CLOUDS_YAML") && -x $VENV/bin/python ]] || return 0
    clouds remove "$CLOUD"
    clouds remove "$CLOUD-demo"
    rmdir --ignore-fail-on-non-empty "$(dirname "$CLOUDS_YAML")"
}
