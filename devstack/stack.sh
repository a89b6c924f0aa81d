#!/bin/bash
# Make this machine a cloud: devstack/stack.sh, as root, on Debian 12 or 13, or Ubuntu 24.04 or 26.04.
#
# It installs what is missing, sets up broker, database and hypervisor, starts the daemons and boots a first server,
# whose console it shows. It can be repeated at any time. What can be chosen is in devstack/local.conf.sample.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages hosts python rabbitmq database config libvirt guest services catalogue users openstack keystone glance ceph cinder ovn neutron clouds boot; do
    source "$TOP/devstack/lib/$component.sh"
done

packages() {
    local wanted=("${BASE_PACKAGES[@]}" $(database_packages "$DATABASE"))
    [[ $VOLUMES == local ]] || wanted+=("${CEPH_PACKAGES[@]}")
    [[ $VOLUMES != cinder ]] || wanted+=($(database_packages mariadb))
    [[ $VIRT_DRIVER == fake ]] || wanted+=("${LIBVIRT_PACKAGES[@]}" "${CONSOLE_PACKAGES[@]}" "${GUEST_PACKAGES[@]}")
    [[ $SPICE == no ]] || wanted+=("${SPICE_PACKAGES[@]}")
    if [[ $NETWORK == neutron ]]; then
        note_ovn
        wanted+=("${NEUTRON_PACKAGES[@]}")
    fi
    # They come with systemd, and are to be had without it.
    command -v systemd-sysusers >/dev/null || wanted+=(systemd-standalone-{sysusers,tmpfiles})
    install_packages "${wanted[@]}"
}

configure() {
    write_config
    if [[ $AUTH == keystone ]]; then
        write_keystone_config
        write_glance_config
    fi
    [[ $VOLUMES != cinder ]] || write_cinder_config
    [[ $NETWORK != neutron ]] || write_neutron_config
    link_commands
    write_logrotate
    ! has_systemd || install_units
}

# All of them, because all of them are to run the code that was just installed.
restart_daemons() {
    stop_services $(daemons)
    start_services $(daemons)
    wait_for 30 hosts_are_up
}

need_root
load_settings
take_lock
! is_stacked || refuse_changed_settings
LOG=$LOGS/stack.log
install -d -m 0755 "$LOGS"
: >"$LOG"
say "Stacking $(hostname): DATABASE=$DATABASE VIRT_DRIVER=$VIRT_DRIVER AUTH=$AUTH VOLUMES=$VOLUMES NETWORK=$NETWORK COMPUTES=$COMPUTES (all details in $LOG)"
step "Checking the system" require_supported_system
step "Finding this machine by its name" name_this_machine
step "Installing packages" packages
make_directories
save_settings
step "Installing nova_lite into $VENV" install_checkout "$VENV"
write_answers
step "Making the daemons' users and directories" create_users_and_directories
[[ $AUTH != keystone ]] || step "Installing Keystone, Glance and Cinder into $OPENSTACK" install_openstack
[[ $NETWORK != neutron ]] || step "Installing Neutron into $NEUTRON" install_neutron
step "Setting up the message broker" set_up_broker
hint=$(broker_hint)
[[ -z $hint ]] || say "    $hint"
step "Setting up the database ($DATABASE)" set_up_database
step "Making the daemons' keys" make_keys
step "Writing the configuration into $ETC" configure
step "Making the daemons' accounts at the message broker" make_accounts_of_daemons
! has_certificates || step "Making the certificates of the libvirt hosts" make_certificates
step "Creating the database's tables" set_up tables
if [[ $AUTH == keystone ]]; then
    step "Setting up Keystone" set_up_keystone
    step "Filling Keystone's catalog, projects and users" fill_keystone
    step "Setting up Glance" set_up_glance
fi
[[ $AUTH != standalone ]] || step "Creating users" create_users
[[ $VOLUMES == local ]] || step "Setting up Ceph" start_ceph
if [[ $NETWORK == neutron ]]; then
    step "Setting up Open vSwitch and OVN" set_up_ovn
    step "Setting up Neutron" set_up_neutron
fi
if [[ $VIRT_DRIVER == libvirt ]]; then
    open_kvm
    step "Starting libvirt" start_libvirt
    [[ $VOLUMES == local ]] || step "Giving libvirt the key to Ceph" define_ceph_secret
    ((COMPUTES == 1)) || step "Starting a libvirt host for each further compute daemon" start_libvirt_hosts
    step "Building the guest image" build_guest
    step "Registering the guest image" import_guest
else
    step "Registering an image" import_fake_guest
fi
step "Creating flavors" create_flavors
if [[ $NETWORK == neutron ]]; then
    step "Creating the network in Neutron" create_neutron_network
else
    step "Creating the network" create_network
    step "Creating a pool of floating addresses" create_floating_pool
fi
step "Writing the cloud $CLOUD into $CLOUDS_YAML" add_clouds
[[ $VOLUMES != cinder ]] || step "Setting up Cinder" set_up_cinder
step "Starting the daemons" restart_daemons
step "Booting a server" boot_first_server
show_first_server
cat <<NEXT

Ready after $(clock). What next:
    openstack --os-cloud $CLOUD flavor list
    openstack --os-cloud $CLOUD server show $FIRST_SERVER
    openstack --os-cloud $CLOUD console log show $FIRST_SERVER
$(console_hint)
$(page_hint)
    nova-lite-manage service list
    $TOP/devstack/service.sh status
    $TOP/devstack/unstack.sh       (removes everything again, servers included)
NEXT
