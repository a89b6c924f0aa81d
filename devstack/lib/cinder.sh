# A Cinder of this cloud's own, beside its Keystone and Glance: volumes in a Ceph of one node, loopback, a virtual
# host of the broker for itself, and a database on MariaDB: several of its processes write at the same time, for which it
# does not use SQLite well. Sourced, never run.

CINDER_VHOST=nova-lite-cinder
CINDER_BROKER_USER=nova-lite-cinder
CINDER_DATABASE=nova_lite_cinder

volume_url() {
    echo "http://127.0.0.1:$VOLUME_PORT/v3"
}

write_cinder_config() {
    make_openstack_directories cinder
    config_file "$(service_user cinder)" cinder/cinder.conf <<CONFIG
[DEFAULT]
transport_url = rabbit://$CINDER_BROKER_USER:$(secret broker-cinder)@127.0.0.1:5672/$CINDER_VHOST
api_paste_config = $OPENSTACK/etc/cinder/api-paste.ini
resource_query_filters_file = $OPENSTACK/etc/cinder/resource_filters.json
auth_strategy = keystone
state_path = $STATE/cinder
enabled_backends = ceph
glance_api_servers = http://127.0.0.1:$IMAGE_PORT
storage_availability_zone = nova
log_file =

[oslo_concurrency]
lock_path = $STATE/cinder/lock

[cinder_sys_admin]
helper_command = $OPENSTACK/bin/privsep-helper --config-dir $ETC/cinder

[privsep_osbrick]
helper_command = $OPENSTACK/bin/privsep-helper --config-dir $ETC/cinder

[database]
connection = mysql+pymysql://$CINDER_DATABASE:$(secret database-cinder)@127.0.0.1/$CINDER_DATABASE?charset=utf8mb4

[ceph]
volume_driver = cinder.volume.drivers.rbd.RBDDriver
volume_backend_name = ceph
rbd_ceph_conf = $ETC/ceph/ceph.conf
rbd_pool = volumes
rbd_user = cinder
rbd_secret_uuid = $(ceph_secret_uuid)

[nova]
interface = public
token_auth_url = $(auth_url)
$(service_credentials cinder)

$(keystone_authtoken cinder)
service_token_roles = service
service_token_roles_required = true
CONFIG
    echo "$VOLUME_PORT" | install -m 0644 /dev/stdin "$ETC/cinder/port"
}

# What our daemons are told: all of them that volumes are Cinder's or in Ceph, or where the files are that all hosts share; API
# and conductor, and no host, as whom to drive Cinder.
volume_config() {
    echo "[volume]"
    [[ $VOLUMES == local ]] || echo "backend = $VOLUMES"
    [[ $VOLUMES == cinder ]] || printf '%s\n' "store_path = $STATE/volumes" "backup_path = $STATE/backups"
    [[ $VOLUMES != rbd ]] || printf '%s\n' "rbd_pool = volumes" "rbd_user = cinder" "rbd_ceph_conf = $CEPH_CONFIG" \
        "rbd_secret_uuid = $(ceph_secret_uuid)"
}

cinder_config() {
    [[ $VOLUMES != cinder ]] || { echo "[cinder]"; service_credentials nova-lite; }
}

set_up_cinder() {
    local name
    for name in cinder cinder-scheduler cinder-volume; do
        stop_service "$name"
    done
    rabbitmqctl --quiet list_vhosts | grep -x "$CINDER_VHOST" >/dev/null || rabbitmqctl --quiet add_vhost "$CINDER_VHOST"
    secret broker-cinder | rabbitmqctl --quiet add_user "$CINDER_BROKER_USER" ||
        secret broker-cinder | rabbitmqctl --quiet change_password "$CINDER_BROKER_USER"
    rabbitmqctl --quiet set_permissions -p "$CINDER_VHOST" "$CINDER_BROKER_USER" '.*' '.*' '.*'
    start_mariadb
    make_mariadb_database "$CINDER_DATABASE" "$CINDER_DATABASE" "$(secret database-cinder)"
    as_service cinder "$OPENSTACK/bin/cinder-manage" --config-dir "$ETC/cinder" db sync
    start_services cinder cinder-scheduler cinder-volume
    wait_for 60 cinder_is_up
}

cinder_is_up() {
    local services
    services=$(OS_CLIENT_CONFIG_FILE=$CLOUDS_YAML "$VENV/bin/openstack" --os-cloud "$CLOUD" volume service list \
        --format value --column Binary --column State)
    echo "$services"
    grep -qx 'cinder-volume up' <<<"$services" && grep -qx 'cinder-scheduler up' <<<"$services"
}

drop_cinder() {
    rabbitmqctl --quiet list_vhosts | grep -x "$CINDER_VHOST" >/dev/null || return 0
    rabbitmqctl --quiet delete_vhost "$CINDER_VHOST"
    rabbitmqctl --quiet delete_user "$CINDER_BROKER_USER"
    start_mariadb
    drop_mariadb_database "$CINDER_DATABASE" "$CINDER_DATABASE"
}
