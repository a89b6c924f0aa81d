# A Neutron of this cloud's own, for NETWORK=neutron: MariaDB (its migrations know no SQLite), a virtual host of the broker's,
# the Linux bridge agent and a DHCP agent on this machine. Sourced, never run.

NEUTRON_VHOST=nova-lite-neutron
NEUTRON_USER=nova-lite-neutron
NEUTRON_DATABASE=nova_lite_neutron
NEUTRON_PACKAGES=(dnsmasq-base ebtables iptables mariadb-server)

install_neutron() {
    install_locked "$NEUTRON" neutron
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
    chmod 0755 "$STATE/neutron" # dnsmasq, which gives up root, reads there what it serves
    neutron_common | config_file "$(service_user neutron)" neutron/neutron.conf
    config_file "$(service_user neutron)" neutron/ml2.ini <<CONFIG
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers = linuxbridge
extension_drivers = port_security
CONFIG
    neutron_agents | config_file root neutron/agents.conf
}

neutron_broker() {
    cat <<CONFIG
setproctitle = off
transport_url = rabbit://$NEUTRON_USER:$(secret broker-neutron)@127.0.0.1:5672/$NEUTRON_VHOST
state_path = $STATE/neutron
CONFIG
}

neutron_common() {
    cat <<CONFIG
[DEFAULT]
core_plugin = ml2
service_plugins =
auth_strategy = keystone
bind_host = 127.0.0.1
bind_port = $NETWORK_PORT
api_workers = 1
rpc_workers = 1
rpc_state_report_workers = 0
dhcp_agents_per_network = 1
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
api_paste_config = $NEUTRON/etc/neutron/api-paste.ini
$(neutron_broker)

[database]
connection = mysql+pymysql://$NEUTRON_DATABASE:$(secret neutron-database)@127.0.0.1/$NEUTRON_DATABASE?charset=utf8mb4

[nova]
$(service_credentials neutron)

[oslo_concurrency]
lock_path = $STATE/neutron/lock

[experimental]
linuxbridge = true

$(keystone_authtoken neutron)
CONFIG
}

# The agents are root, so nothing of theirs asks for it.
neutron_agents() {
    local section
    cat <<CONFIG
[DEFAULT]
interface_driver = linuxbridge
$(neutron_broker)

[agent]
root_helper =
polling_interval = 1

[vxlan]
enable_vxlan = false

[securitygroup]
enable_security_group = true
firewall_driver = iptables
enable_ipset = false

[oslo_concurrency]
lock_path = $STATE/neutron/agents-lock

[experimental]
linuxbridge = true
CONFIG
    for section in privsep privsep_{dhcp_release,ovs_vsctl,namespace,conntrack,link}; do
        printf '\n[%s]\nhelper_command = %s\n' "$section" \
            "$NEUTRON/bin/privsep-helper --config-file $ETC/neutron/agents.conf"
    done
}

set_up_neutron() {
    stop_services $NEUTRON_SERVICES
    start_mariadb
    make_mariadb_database "$NEUTRON_DATABASE" "$NEUTRON_DATABASE" "$(secret neutron-database)"
    rabbitmqctl --quiet list_vhosts | grep -x "$NEUTRON_VHOST" >/dev/null || rabbitmqctl --quiet add_vhost "$NEUTRON_VHOST"
    secret broker-neutron | rabbitmqctl --quiet add_user "$NEUTRON_USER" ||
        secret broker-neutron | rabbitmqctl --quiet change_password "$NEUTRON_USER"
    rabbitmqctl --quiet set_permissions --vhost "$NEUTRON_VHOST" "$NEUTRON_USER" '.*' '.*' '.*'
    as_service neutron "$NEUTRON/bin/neutron-db-manage" --config-file "$ETC/neutron/neutron.conf" --config-file "$ETC/neutron/ml2.ini" \
        upgrade heads
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

# Namespaces, their dnsmasq, and bridges of the networks that this Neutron has, and its agent's rules.
remove_neutron() {
    local id pid networks=
    ! mariadb_answers >/dev/null 2>&1 ||
        networks=$(echo "SELECT id FROM $NEUTRON_DATABASE.networks" | mariadb --user=root --batch --skip-column-names || true)
    for id in $networks; do
        if ip netns pids "qdhcp-$id" >/dev/null 2>&1; then
            for pid in $(ip netns pids "qdhcp-$id"); do
                kill "$pid" 2>/dev/null || true # it may have ended
            done
            ip netns delete "qdhcp-$id"
        fi
        [[ ! -e /sys/class/net/brq${id:0:11} ]] || ip link delete "brq${id:0:11}"
    done
    remove_neutron_rules
    ! command -v mariadb >/dev/null || ! mariadb_answers >/dev/null 2>&1 ||
        drop_mariadb_database "$NEUTRON_DATABASE" "$NEUTRON_DATABASE"
    if rabbitmqctl --quiet list_vhosts 2>/dev/null | grep -x "$NEUTRON_VHOST" >/dev/null; then
        rabbitmqctl --quiet delete_vhost "$NEUTRON_VHOST"
        delete_broker_user "$NEUTRON_USER"
    fi
}

# The agent's chains in the legacy or nft-backed tables of iptables.
remove_neutron_rules() {
    local command table
    for command in iptables ip6tables; do
        for table in filter raw mangle nat; do
            "$command-save" --table "$table" 2>/dev/null | grep -q neutron || continue
            "$command-save" --table "$table" | grep -v neutron | "$command-restore" --table "$table"
        done
    done
}
