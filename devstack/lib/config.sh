# The system user, the directories and the configuration files. Sourced, never run.
#
#   nova-lite.conf      what all daemons share: the broker, where state is kept     root:nova-lite 0640
#   api.conf            the REST daemon's                                           root:nova-lite 0640
#   conductor.conf      the database, which no other daemon is told                 root:nova-lite 0640
#   compute.conf, compute-N.conf   one compute daemon's name and hypervisor         root:root      0640

create_owner() {
    getent group "$OWNER" >/dev/null || groupadd --system "$OWNER"
    getent passwd "$OWNER" >/dev/null ||
        useradd --system --gid "$OWNER" --home-dir "$STATE" --no-create-home --shell /usr/sbin/nologin \
            --comment "nova_lite control plane" "$OWNER"
}

# Others may pass through the state directory: guests' processes open their disks there.
create_owner_and_directories() {
    create_owner
    install -d -m 0755 "$PREFIX" "$LOGS" "$STATE"
    install -d -m 0750 -g "$OWNER" "$ETC"
    install -d -m 0750 -o "$OWNER" -g "$OWNER" "$STATE/images"
    install -d -m 0700 -o "$OWNER" -g "$OWNER" "$STATE/identity" "$STATE/identity/keys"
}

# Clients find identity and image API in the identity API's catalog: one without the other is of no use.
enabled_apis() {
    case $AUTH in
    standalone) echo osapi_compute, identity, image$(metadata_api) ;;
    keystone | noauth2) echo osapi_compute$(metadata_api) ;;
    esac
}

# Guests of this machine are led from 169.254.169.254 to the API, at an address that the compute daemon gives the machine.
# Further libvirt hosts (own_libvirt) have no API, so their guests have config drives.
METADATA_ADDRESS=169.254.87.75

metadata_api() {
    [[ $VIRT_DRIVER != libvirt ]] || echo ", metadata"
}

metadata_config() {
    [[ $VIRT_DRIVER == libvirt ]] || return 0
    printf '%s\n' "[api]" "metadata_listen = $METADATA_ADDRESS" "[network]" "metadata_service = true"
}

image_config() {
    echo "[image]"
    if [[ $AUTH == keystone ]]; then
        printf '%s\n' "backend = glance" "" "[glance]"
        service_credentials nova-lite
    else
        echo "store_path = $STATE/images"
    fi
}

config_file() {
    local group=$1 name=$2
    { echo "# Written by devstack/stack.sh; nova-lite.conf.sample explains every option of nova_lite."; cat; } |
        install -m 0640 -o root -g "$group" /dev/stdin "$ETC/$name"
}

write_config() {
    local name
    install -m 0644 "$TOP/etc/nova-lite/api-paste.ini" "$ETC/api-paste.ini"
    install -m 0644 "$TOP/etc/nova-lite/nova-lite.conf" "$ETC/nova-lite.conf.sample"
    echo "${CONCURRENCY:+NOVA_LITE_CONCURRENCY=$CONCURRENCY}" | install -m 0644 /dev/stdin "$ETC/environment"
    config_file "$OWNER" nova-lite.conf <<CONFIG
[DEFAULT]
transport_url = $(broker_url)
state_path = $STATE

$(image_config)

[identity]
users_file = $STATE/identity/users.yaml
tokens_path = $STATE/identity

$(console_config)
CONFIG
    config_file "$OWNER" api.conf <<CONFIG
[api]
port = $API_PORT
workers = $API_WORKERS
auth_strategy = $AUTH
enabled_apis = $(enabled_apis)
identity_port = $IDENTITY_PORT
image_port = $IMAGE_PORT
paste_config = $ETC/api-paste.ini
$([[ $AUTH != keystone ]] || keystone_authtoken nova-lite)

$(metadata_config)
CONFIG
    config_file "$OWNER" conductor.conf <<CONFIG
[database]
connection = $(database_url)
CONFIG
    for name in $(compute_services); do
        write_compute_config "$name"
    done
}

# compute_host SERVICE: the name of the host that the service is.
compute_host() {
    echo "$(hostname)${1#compute}"
}

# Several compute daemons on one machine are several hosts: each has a name and a state directory of its own, and with
# libvirt an address. As they see each other's directories, disks are copied between them without SSH.
write_compute_config() {
    local name=$1 state=$STATE
    [[ $name == compute ]] || state=$STATE/$name
    install -d -m 0755 "$state"
    config_file root "$name.conf" <<CONFIG
[DEFAULT]
host = $(compute_host "$name")
compute_driver = $VIRT_DRIVER
state_path = $state
$([[ $VIRT_DRIVER != libvirt || $name == compute ]] || libvirt_host_config "${name#compute-}")

$([[ -n $(own_libvirt "$name") ]] || metadata_config)
CONFIG
}

# Who is asked for a console is on this machine, and so are the guests.
console_config() {
    [[ $VIRT_DRIVER != libvirt ]] || printf '%s\n' "[serial_console]" "enabled = true"
}

# What daemon NUMBER of several says besides; 1 is this machine itself.
libvirt_host_config() {
    echo "my_ip = $HOSTS_NETWORK.$1"
    (($1 == 1)) || echo "transport_url = $(broker_url "$HOSTS_NETWORK.1")"
    printf '%s\n' "" "[libvirt]" "live_migration_uri = qemu+unix:///system?socket=/run/nova-lite-hosts/%s/libvirt-sock" \
        "" "[vnc]" "server_listen = $HOSTS_NETWORK.$1" "server_proxyclient_address = $HOSTS_NETWORK.$1" \
        "" "[serial_console]" "proxyclient_address = $HOSTS_NETWORK.$1"
}

# Our tool, and the client when the machine has none of its own, on everybody's PATH.
link_commands() {
    ln -sf "$VENV/bin/nova-lite-manage" /usr/local/bin/nova-lite-manage
    [[ -e /usr/local/bin/openstack || -e /usr/bin/openstack ]] || ln -s "$VENV/bin/openstack" /usr/local/bin/openstack
}

unlink_commands() {
    local command
    for command in nova-lite-manage openstack; do
        [[ $(readlink "/usr/local/bin/$command") != "$VENV/bin/$command" ]] || rm "/usr/local/bin/$command"
    done
}

write_logrotate() {
    install -d /etc/logrotate.d
    install -m 0644 "$TOP/etc/logrotate.d/nova-lite" /etc/logrotate.d/nova-lite
}

remove_files_and_links() {
    unlink_commands
    rm -rf "$ETC" "$STATE" "$LOGS" "$PREFIX" "$RUN"
    rm -f /etc/logrotate.d/nova-lite
}

remove_owner() {
    ! getent passwd "$OWNER" >/dev/null || userdel "$OWNER"
    ! getent group "$OWNER" >/dev/null || groupdel "$OWNER"
}
