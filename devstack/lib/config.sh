# The system users, the directories and the configuration files. Sourced, never run.
#
#   nova-lite.conf      what all daemons share, and no secret among it              root:nova-lite            0640
#   api.conf            the REST daemon's                                           root:nova-lite-api        0640
#   conductor.conf      the database, which no other daemon is told                 root:nova-lite-conductor  0640
#   scheduler.conf                                                                  root:nova-lite-scheduler  0640
#   novncproxy.conf, serialproxy.conf, spicehtml5proxy.conf                         root:nova-lite-console    0640
#   compute.conf, compute-N.conf   one compute daemon's name and hypervisor         root:root                 0640
#   manage.conf         an operator's nova-lite-manage                              root:root                 0640
#   keys/hosts/         the certificates of several libvirt hosts, their authority  root:root                 0700
#   console-tls/        the console proxies' certificate for those hosts
#   keys/               each daemon's key (0600, its user's), and the list of those that are trusted
#
# Each of them but the first says by which account its daemon comes to the broker.

# What nova-lite-setup does on a controller, it does here as well: `set_up STEP [ARGUMENT]...`, a step of set_up.py. Here is only
# what it does not have.
ANSWERS=$ETC/answers.yaml

set_up() {
    local step=$1
    shift
    "$VENV/bin/python" "$TOP/devstack/lib/set_up.py" "$step" "$ANSWERS" "$@"
}

# As for `nova-lite-setup controller --answers`. The URL of a database of PostgreSQL has a password.
write_answers() {
    local database=$DATABASE
    [[ $DATABASE != postgresql ]] || database=$(database_url)
    install -m 0600 /dev/stdin "$ANSWERS" <<ANSWERS
address: 127.0.0.1
database: '$database'
region: $REGION
cloud: $CLOUD
${PROJECT_RANGES:+project_ranges: '$PROJECT_RANGES'}
ANSWERS
}

# compute_hosts: SERVICE HOST BROKER_ADDRESS of each compute daemon, for `set_up`. A libvirt host has a network of its own, in
# which this machine has another address.
compute_hosts() {
    local name
    for name in $(compute_services); do
        echo "$name $(compute_host "$name") $([[ -z $(own_libvirt "$name") ]] && echo 127.0.0.1 || echo "$HOSTS_NETWORK.1")"
    done
}

make_directories() {
    install -d -m 0755 "$PREFIX" "$LOGS"
    [[ -d $ETC ]] || install -d -m 0750 "$ETC"
}

create_users_and_directories() {
    local user
    set_up users
    for user in $(openstack_users); do
        getent passwd "$user" >/dev/null ||
            useradd --system --user-group --home-dir "$STATE" --no-create-home --shell /usr/sbin/nologin \
                --comment "nova_lite ${user#"$GROUP-"}" "$user"
        usermod --append --groups "$GROUP" "$user"
    done
    leave_the_one_user
}

# Where an earlier version had one user for all daemons: they stop, and each file becomes its daemon's.
leave_the_one_user() {
    local name role key
    getent passwd "$GROUP" >/dev/null || return 0
    stop_services $(all_services)
    if [[ -d $STATE/images ]]; then
        chown -R "$(service_user api):$(service_user conductor)" "$STATE/images"
        find "$STATE/images" -type d -exec chmod 0770 {} +
    fi
    for name in identity:api conductor:conductor keystone:keystone glance:glance; do
        [[ ! -d $STATE/${name%:*} ]] || give_to "${name#*:}" "$STATE/${name%:*}"
    done
    for key in "$KEYS"/{api,conductor,scheduler,console}.*.key*; do
        role=$(basename "$key")
        role=${role%%.*}
        [[ ! -e $key ]] || give_to "${role/console/novncproxy}" "$key"
    done
    userdel "$GROUP"
}

# give_to SERVICE PATH: all of it becomes the user's whom the service runs as.
give_to() {
    chown -R "$(service_user "$1"):$(service_user "$1")" "$2"
}

# Clients find the other APIs in the identity API's catalog: one without the other is of no use.
# Keystone's lists the network API, too, unless that is Neutron's.
enabled_apis() {
    case $AUTH in
    standalone) echo osapi_compute, identity, image, volume, network, placement, page$(metadata_api) ;;
    keystone) echo "osapi_compute$([[ $NETWORK == neutron ]] || echo ", network")$(metadata_api)" ;;
    noauth2) echo osapi_compute$(metadata_api) ;;
    esac
}

# Guests of this machine reach its API at 169.254.169.254 on their networks. Further libvirt hosts (own_libvirt) have no API,
# so their guests have config drives.
metadata_api() {
    [[ $VIRT_DRIVER != libvirt || $NETWORK == neutron ]] || echo ", metadata"
}

metadata_config() {
    [[ $VIRT_DRIVER == libvirt && $NETWORK != neutron ]] || return 0
    printf '%s\n' "[network]" "metadata_service = true"
}

image_config() {
    echo "[image]"
    if [[ $AUTH == keystone ]]; then
        echo "backend = glance"
    else
        echo "store_path = $STATE/images"
    fi
}

# By which the daemons that reach for images come to Glance.
glance_config() {
    [[ $AUTH != keystone ]] || { echo "[glance]" && service_credentials nova-lite; }
}

config_file() {
    local group=$1 name=$2
    { echo "# Written by devstack/stack.sh; nova-lite.conf.sample explains every option of nova_lite."; cat; } |
        install -m 0640 -o root -g "$group" /dev/stdin "$ETC/$name"
}

# What differs from the set-up's files, in a directory that only root may read. An empty value leaves the option out: tunnels
# to other machines begin at the default of my_ip, this machine's own address.
write_config() {
    local name
    changes=$(mktemp --directory) # not local: the trap outlives this function
    trap 'remove_tree "$changes"' EXIT
    install -m 0644 "$TOP/etc/nova-lite/nova-lite.conf" "$ETC/nova-lite.conf.sample"
    echo "${CONCURRENCY:+NOVA_LITE_CONCURRENCY=$CONCURRENCY}" | install -m 0644 /dev/stdin "$ETC/environment"
    cat >"$changes/nova-lite.conf" <<CONFIG
[DEFAULT]
my_ip =
$(image_config)
$(network_config)
$(volume_config)
[identity]
users_file = $STATE/identity/users.yaml
$(console_config)
CONFIG
    cat >"$changes/api.conf" <<CONFIG
[api]
port = $API_PORT
workers = $API_WORKERS
auth_strategy = $AUTH
enabled_apis = $(enabled_apis)
identity_port = $IDENTITY_PORT
image_port = $IMAGE_PORT
volume_port = $VOLUME_PORT
network_port = $NETWORK_PORT
placement_port = $PLACEMENT_PORT
page_port = $PAGE_PORT
$([[ $AUTH != keystone ]] || keystone_authtoken nova-lite)
$(glance_config)
$(cinder_config)
$(metadata_config)
CONFIG
    cat >"$changes/conductor.conf" <<CONFIG
$(glance_config)
$(cinder_config)
$(neutron_config)
[network]
project_ranges = $PROJECT_RANGES
$(project_vnis)
CONFIG
    for name in $(compute_services); do
        compute_config "$name" >"$changes/$name.conf"
    done
    compute_hosts | set_up configuration "$changes"
}

# Networks of projects span several libvirt hosts; the fake driver and a single host need no tunnels.
project_vnis() {
    ! has_certificates || echo "project_vnis = 100000-109999"
}

make_keys() {
    compute_hosts | set_up keys
}

make_accounts_of_daemons() {
    compute_hosts | set_up accounts
}

# host_certificates SERVICE: the directory of the certificates of the host that the service is.
host_certificates() {
    echo "$KEYS/hosts/$(compute_host "$1")"
}

# has_certificates: whether guests of several libvirt hosts are reached over a network, if only one within this machine.
has_certificates() {
    [[ $VIRT_DRIVER == libvirt ]] && ((COMPUTES > 1))
}

# What exists stays: `nova-lite-manage keys rotate` renews the certificates of a host or of the proxies.
make_certificates() {
    local name proxy owner
    proxy=$KEYS/hosts/proxy-$(hostname)
    owner=$(service_user novncproxy)
    for name in $(compute_services); do
        [[ -e $(host_certificates "$name")/server-cert.pem ]] ||
            "$VENV/bin/nova-lite-manage" certificates create "$(compute_host "$name")" --owner libvirt-qemu \
                --address "$HOSTS_NETWORK.${name#compute-}" --authority "$KEYS/hosts"
    done
    [[ -e $proxy/client-cert.pem ]] ||
        "$VENV/bin/nova-lite-manage" certificates proxy "$(hostname)" --owner "$owner" --authority "$KEYS/hosts"
    # The authority's directory is root's alone.
    install -d -m 0755 "$CONSOLE_TLS"
    install -m 0644 "$proxy"/{ca,client}-cert.pem "$CONSOLE_TLS"
    install -m 0600 -o "$owner" -g "$owner" "$proxy/client-key.pem" "$CONSOLE_TLS"
}

# compute_host SERVICE: the name of the host that the service is.
compute_host() {
    echo "$(hostname)${1#compute}"
}

# compute_metrics_port NUMBER: the first host's is the default; between that and the API's there is no room for 99.
compute_metrics_port() {
    (($1 == 1)) && echo 9772 || echo $((9900 + $1))
}

# Several compute daemons on one machine are several hosts: each has a name, a state directory and a port for its metrics
# of its own, and with libvirt an address. As they see each other's directories, disks are copied between them without SSH.
compute_config() {
    local name=$1 state=$STATE
    [[ $name == compute ]] || state=$STATE/$name
    install -d -m 0755 "$state"
    cat <<CONFIG
[DEFAULT]
compute_driver = $VIRT_DRIVER
state_path = $state
$([[ $VIRT_DRIVER != libvirt || $name == compute ]] || libvirt_host_config "${name#compute-}")
$([[ $name == compute ]] || printf '%s\n' "[metrics]" "compute_port = $(compute_metrics_port "${name#compute-}")")
$(glance_config)
$([[ -n $(own_libvirt "$name") ]] || metadata_config)
CONFIG
}

# Who is asked for a console is on this machine, and so are the guests. Screens of further libvirt hosts have TLS; this
# machine's libvirtd is its owner's, and has what its qemu.conf says.
console_config() {
    [[ $VIRT_DRIVER == libvirt ]] || printf '%s\n' "[serial_console]" "enabled = false"
    [[ $SPICE == no ]] || printf '%s\n' "" "[spice]" "enabled = true"
    ! has_certificates || printf '%s\n' "" "[console]" "tls_directory = $CONSOLE_TLS" "require_tls = false"
}

# What daemon NUMBER of several says besides; 1 is this machine itself.
libvirt_host_config() {
    local certificates=/var/lib/libvirt/pki
    (($1 != 1)) || certificates=$(host_certificates compute-1)
    echo "my_ip = $HOSTS_NETWORK.$1"
    printf '%s\n' "" "[libvirt]" "certificates_directory = $certificates" \
        "live_migration_uri = qemu+unix:///system?socket=/run/nova-lite-hosts/%s/libvirt-sock" \
        "" "[vnc]" "server_listen = $HOSTS_NETWORK.$1" "server_proxyclient_address = $HOSTS_NETWORK.$1" \
        "" "[spice]" "server_listen = $HOSTS_NETWORK.$1" "server_proxyclient_address = $HOSTS_NETWORK.$1" \
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
    # Other machines may use directories of this one.
    (source "$TOP/devstack/packaging/purge.sh" && purge_state)
    remove_tree "$ETC" "$LOGS" "$PREFIX" "$RUN" /run/nova-lite-conductor /run/nova-lite-metadata
    rm -f /etc/logrotate.d/nova-lite /etc/sysusers.d/nova-lite.conf /etc/tmpfiles.d/nova-lite.conf
}

remove_users() {
    local user
    for user in $(getent passwd | cut -d: -f1 | grep -E "^$GROUP(-(api|conductor|scheduler|console|keystone|glance|cinder|neutron))?$" || true); do
        userdel "$user"
    done
    for user in $(getent group | cut -d: -f1 | grep -E "^$GROUP(-(api|conductor|scheduler|console|keystone|glance|cinder|neutron))?$" || true); do
        groupdel "$user"
    done
}
