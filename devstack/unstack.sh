#!/bin/bash
# Remove all that devstack/stack.sh made: servers, daemons, networks, database, broker's virtual host, configuration,
# state, logs, the system users. Packages stay, and so do broker, database server and libvirt. It can be repeated.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages hosts python rabbitmq database config libvirt guest services catalogue users openstack ceph cinder ovn neutron clouds boot; do
    source "$TOP/devstack/lib/$component.sh"
done

stop_daemons() {
    if has_systemd; then
        remove_units
    else
        stop_services $(all_services)
    fi
}

need_root
load_settings
take_lock
# Not what was asked for now, but what is there.
! is_stacked || load_stacked_settings
LOG=$(mktemp /tmp/unstack.XXXXXX.log)
say "Unstacking $(hostname) (all details in $LOG)"
step "Stopping the daemons" stop_daemons
step "Removing guests and their networks" remove_guests
[[ $NETWORK != neutron ]] || step "Dropping Neutron's database and virtual host" remove_neutron
[[ ! -e $OVN_NOTE ]] || step "Removing OVN's bridge and databases" remove_ovn
[[ -z $(libvirt_hosts) ]] || step "Removing the further libvirt hosts" remove_libvirt_hosts
step "Removing Ceph" remove_ceph
step "Dropping Cinder's database and virtual host" drop_cinder
step "Removing the cloud $CLOUD from $CLOUDS_YAML" remove_clouds
step "Dropping the database" drop_database
step "Dropping the broker's virtual host" drop_broker
step "Removing files" remove_files_and_links
step "Removing what devstack wrote into $HOSTS_FILE" forget_this_machine
step "Removing the daemons' users" remove_users
rm -f "$LOG"
say "Nothing of nova_lite is left here."
