# Keystone, Glance and Cinder from PyPI, in a virtual environment of their own, for AUTH=keystone. Sourced, never run.

install_openstack() {
    install_locked "$OPENSTACK" openstack
    install -m 0644 "$TOP/devstack/lib/"{serve_wsgi,run_cinder}.py "$OPENSTACK/"
}

# The directories of a service; others have no business in either.
make_openstack_directories() {
    local user
    user=$(service_user "$1")
    install -d -m 0750 -g "$user" "$ETC/$1"
    install -d -m 0700 -o "$user" -g "$user" "$STATE/$1"
}

# as_service NAME COMMAND [ARGUMENT...]: as that service's user.
as_service() {
    local user
    user=$(service_user "$1")
    shift
    setpriv --reuid="$user" --regid="$user" --init-groups "$@"
}

# service_credentials USER: options by which a service has a token of its own.
service_credentials() {
    cat <<CONFIG
auth_type = password
auth_url = $(auth_url)
username = $1
password = $(secret "$1-password")
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = $REGION
CONFIG
}

# keystone_authtoken USER: the section by which a service's middleware asks Keystone about tokens.
keystone_authtoken() {
    cat <<CONFIG
[keystone_authtoken]
www_authenticate_uri = $(auth_url)
interface = public
$(service_credentials "$1")
CONFIG
}

install_openstack_units() {
    local name
    for name in $(openstack_services); do
        install -m 0644 /dev/stdin "/etc/systemd/system/$(unit_of "$name")" <<UNIT
[Unit]
Description=OpenStack $name for nova_lite
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
User=$(service_user "$name")
Group=$(service_user "$name")
ExecStart=$(service_command "$name")
Restart=on-failure
RestartSec=2
NoNewPrivileges=yes
PrivateTmp=yes
ProtectHome=yes
ProtectSystem=strict
ReadWritePaths=$STATE/${name%%-*}

[Install]
WantedBy=multi-user.target
UNIT
    done
}
