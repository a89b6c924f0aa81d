# A Neutron of this cloud's own, for NETWORK=neutron: its API and the maintenance of OVN's databases, on MariaDB (its migrations
# know no SQLite), with a virtual host of the broker's. OVN (ovn.sh) connects and filters guests. Sourced, never run.

NEUTRON_VHOST=nova-lite-neutron
NEUTRON_USER=nova-lite-neutron
NEUTRON_DATABASE=nova_lite_neutron
NEUTRON_PACKAGES=(mariadb-server "${OVN_PACKAGES[@]}")

install_neutron() {
    install_locked "$NEUTRON" neutron
    install -m 0644 "$TOP/devstack/lib/serve_wsgi.py" "$NEUTRON/"
}

# What our daemons are told: all of them that networks are Neutron's; conductors, who alone ask it, as whom.
network_config() {
    [[ $NETWORK != neutron ]] || printf '%s\n' "[network]" "backend = neutron"
}

neutron_config() {
    [[ $NETWORK != neutron ]] || { echo "[neutron]"; service_credentials nova-lite; }
}

write_neutron_config() {
    make_openstack_directories neutron
    echo "$NETWORK_PORT" | install -m 0644 /dev/stdin "$ETC/neutron/port"
    config_file "$(service_user neutron)" neutron/neutron.conf <<CONFIG
[DEFAULT]
core_plugin = ml2
service_plugins = ovn-router
auth_strategy = keystone
setproctitle = off
dhcp_agent_notification = false
state_path = $STATE/neutron
transport_url = rabbit://$NEUTRON_USER:$(secret broker-neutron)@127.0.0.1:5672/$NEUTRON_VHOST
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
api_paste_config = $NEUTRON/etc/neutron/api-paste.ini

[database]
connection = mysql+pymysql://$NEUTRON_DATABASE:$(secret neutron-database)@127.0.0.1/$NEUTRON_DATABASE?charset=utf8mb4

[ml2]
type_drivers = geneve
project_network_types = geneve
mechanism_drivers = ovn
extension_drivers = port_security

[ml2_type_geneve]
vni_ranges = 1:65536
max_header_size = 38

[securitygroup]
enable_security_group = true

[ovn]
ovn_nb_connection = $OVN_NORTHBOUND
ovn_sb_connection = $OVN_SOUTHBOUND

[nova]
$(service_credentials neutron)

[oslo_concurrency]
lock_path = $STATE/neutron/lock

$(keystone_authtoken neutron)
CONFIG
}

set_up_neutron() {
    stop_services $NEUTRON_SERVICES
    start_mariadb
    make_mariadb_database "$NEUTRON_DATABASE" "$NEUTRON_DATABASE" "$(secret neutron-database)"
    rabbitmqctl --quiet list_vhosts | grep -x "$NEUTRON_VHOST" >/dev/null || rabbitmqctl --quiet add_vhost "$NEUTRON_VHOST"
    secret broker-neutron | rabbitmqctl --quiet add_user "$NEUTRON_USER" ||
        secret broker-neutron | rabbitmqctl --quiet change_password "$NEUTRON_USER"
    rabbitmqctl --quiet set_permissions --vhost "$NEUTRON_VHOST" "$NEUTRON_USER" '.*' '.*' '.*'
    as_service neutron "$NEUTRON/bin/neutron-db-manage" --config-file "$ETC/neutron/neutron.conf" upgrade heads
    start_services $NEUTRON_SERVICES
}

# What the built-in backend makes with nova-lite-manage: a network `private` for everybody, with ping and SSH let in by the
# default group of the two projects that there are.
create_neutron_network() {
    {
        secret admin-password
        echo
    } | "$VENV/bin/python" "$TOP/devstack/lib/fill_neutron.py" "$(auth_url)" "$REGION" "$NETWORK_CIDR"
}

remove_neutron() {
    ! command -v mariadb >/dev/null || ! mariadb_answers >/dev/null 2>&1 ||
        drop_mariadb_database "$NEUTRON_DATABASE" "$NEUTRON_DATABASE"
    if rabbitmqctl --quiet list_vhosts 2>/dev/null | grep -x "$NEUTRON_VHOST" >/dev/null; then
        rabbitmqctl --quiet delete_vhost "$NEUTRON_VHOST"
        delete_broker_user "$NEUTRON_USER"
    fi
}
