# The plugin for DevStack, which sources this file with a mode and a phase (docs/howto/devstack.md). Functions without the
# prefix nova_lite_, and variables that this repository does not define, are DevStack's.

# nova_lite_run FUNCTION [ARGUMENT]...: a function of devstack/lib, as root in a shell of its own. Those functions end their
# shell at the first error, and some have the names of DevStack's.
function nova_lite_run {
    sudo bash -c 'source "$0/common.sh"
        for part in packages python rabbitmq services libvirt config; do source "$0/$part.sh"; done
        load_settings
        "$@"' "$NOVA_LITE_DIR/devstack/lib" "$@"
}

function nova_lite_check {
    is_service_enabled key g-api || die $LINENO "nova_lite needs Keystone and Glance here."
    is_service_enabled neutron || die $LINENO "nova_lite needs Neutron here."
    [[ $VIRT_DRIVER == libvirt ]] || die $LINENO "VIRT_DRIVER=$VIRT_DRIVER: nova_lite has libvirt only here."
}

function nova_lite_install {
    # shellcheck disable=SC2016 # the shell of nova_lite_run has the lists
    nova_lite_run eval 'install_packages "${BASE_PACKAGES[@]}" "${LIBVIRT_PACKAGES[@]}" "${CONSOLE_PACKAGES[@]}"'
    nova_lite_run make_directories
    nova_lite_run install_checkout /opt/nova-lite/venv
    ! is_service_enabled cinder || nova_lite_install_volume_client
}

# What Cinder's iSCSI, NVMe and NFS need, and DevStack installs with n-cpu. os-brick is not in the list of locked packages.
function nova_lite_install_volume_client {
    install_package nvme-cli open-iscsi sg3-utils
    echo "InitiatorName=$(iscsi-iname)" | sudo install -m 0600 /dev/stdin /etc/iscsi/initiatorname.iscsi
    restart_service iscsid
    sudo /opt/nova-lite/venv/bin/pip install 'os-brick>=6.4'
}

# nova_lite_credentials FILE SECTION: by which a daemon comes to another service, as the user that nova has.
function nova_lite_credentials {
    configure_keystoneauth "$1" nova "$2"
    iniset "$1" "$2" region_name "$REGION_NAME"
    iniset "$1" "$2" valid_interfaces public
    ! is_service_enabled tls-proxy || iniset "$1" "$2" cafile /etc/nova-lite/ca-bundle.pem
}

# nova_lite_write_changes DIRECTORY: how the configuration differs from that of nova-lite-setup, one file for each daemon.
function nova_lite_write_changes {
    local common=$1/nova-lite.conf api=$1/api.conf conductor=$1/conductor.conf compute=$1/compute.conf
    iniset "$common" image backend glance
    iniset "$common" network backend neutron
    iniset "$common" vnc novncproxy_host "$NOVA_SERVICE_LISTEN_ADDRESS"
    iniset "$common" vnc novncproxy_base_url "http://$SERVICE_HOST:6080/vnc_lite.html"
    iniset "$common" serial_console serialproxy_host "$NOVA_SERVICE_LISTEN_ADDRESS"
    iniset "$common" serial_console base_url "ws://$SERVICE_HOST:6083/"
    iniset "$api" api auth_strategy keystone
    iniset "$api" api enabled_apis "osapi_compute, metadata"
    iniset "$api" api compute_link_prefix "$NOVA_SERVICE_PROTOCOL://$NOVA_SERVICE_HOST/compute"
    iniset "$api" api metadata_listen "$(ipv6_unquote "$SERVICE_HOST")"
    iniset "$api" neutron service_metadata_proxy true
    iniset "$api" neutron metadata_proxy_shared_secret "$SERVICE_PASSWORD"
    nova_lite_credentials "$api" keystone_authtoken
    iniset "$api" keystone_authtoken www_authenticate_uri "$KEYSTONE_SERVICE_URI"
    iniset "$compute" DEFAULT compute_driver libvirt
    nova_lite_credentials "$api" glance
    nova_lite_credentials "$conductor" glance
    nova_lite_credentials "$compute" glance
    nova_lite_credentials "$conductor" neutron
    if is_service_enabled cinder; then
        iniset "$common" volume backend cinder
        nova_lite_credentials "$api" cinder
        nova_lite_credentials "$conductor" cinder
    fi
}

# Users, keys, configuration, accounts at the broker and tables are made by the steps of nova-lite-setup. The database is
# SQLite: MySQL has no collation that compares names exactly, trailing spaces included.
function nova_lite_configure {
    local changes file host
    host="compute $(hostname) 127.0.0.1"
    changes=$(mktemp --directory)
    nova_lite_write_changes "$changes"
    # Daemons trust no file that its owner, the user of DevStack, could replace.
    ! is_service_enabled tls-proxy || sudo install -m 0644 "$SSL_BUNDLE_FILE" /etc/nova-lite/ca-bundle.pem
    printf '%s\n' "address: 127.0.0.1" "region: '$REGION_NAME'" |
        sudo install -m 0600 /dev/stdin /etc/nova-lite/answers.yaml
    nova_lite_run set_up users
    nova_lite_run set_up keys <<<"$host"
    nova_lite_run set_up configuration "$changes" <<<"$host"
    nova_lite_run set_up accounts <<<"$host"
    nova_lite_run set_up tables
    rm "$changes"/*
    rmdir "$changes"
    # An agent that signs with an empty secret is refused, and that is DevStack's default.
    for file in "$OVN_AGENT_CONF" "$OVN_META_CONF" "$Q_META_CONF_FILE"; do
        [[ ! -f $file ]] || iniset "$file" DEFAULT metadata_proxy_shared_secret "$SERVICE_PASSWORD"
    done
}

# nova_lite_start SERVICE DAEMON USER
function nova_lite_start {
    run_process "$1" "/opt/nova-lite/venv/bin/nova-lite-$2 --config-file /etc/nova-lite/nova-lite.conf \
--config-file /etc/nova-lite/$2.conf" "$3" "$3"
}

# Users, endpoints and flavors are those that DevStack makes for nova: its functions look whether n-api is enabled.
function nova_lite_start_all {
    nova_lite_run start_libvirt
    nova_lite_start nl-cond conductor nova-lite-conductor
    nova_lite_start nl-sch scheduler nova-lite-scheduler
    nova_lite_start nl-api api nova-lite-api
    nova_lite_start nl-cpu compute root
    nova_lite_start nl-novnc novncproxy nova-lite-console
    nova_lite_start nl-serial serialproxy nova-lite-console
    write_local_proxy_http_config nova-lite-api http://127.0.0.1:8774 /compute
    wait_for_service "$SERVICE_TIMEOUT" "$NOVA_SERVICE_PROTOCOL://$NOVA_SERVICE_HOST/compute/" ||
        die $LINENO "nova_lite's API did not start."
    wait_for_compute "$SERVICE_TIMEOUT" || die $LINENO "nova_lite's compute host did not start."
    (ENABLED_SERVICES=n-api && create_flavors)
    # What lib/tempest takes for enabled.
    SERVICES_FOR_TEMPEST=$ENABLED_SERVICES,n-api,n-cpu,n-novnc,n-sproxy
}

function nova_lite_stop {
    local service
    for service in $NOVA_LITE_SERVICES; do
        stop_process "$service"
    done
    disable_apache_site nova-lite-api
    nova_lite_run remove_guests
    nova_lite_run drop_broker
    # shellcheck disable=SC2016 # the shell of nova_lite_run has TOP
    nova_lite_run eval 'source "$TOP/devstack/packaging/purge.sh" && purge_state'
}

case "$1 $2" in
"stack pre-install") nova_lite_check ;;
"stack install")
    echo_summary "Installing nova_lite"
    nova_lite_install
    ;;
"stack post-config")
    echo_summary "Configuring nova_lite"
    (ENABLED_SERVICES=n-api && create_nova_accounts)
    nova_lite_configure
    ;;
"stack extra")
    echo_summary "Starting nova_lite"
    nova_lite_start_all
    ;;
"stack test-config")
    if is_service_enabled tempest; then
        # Only volumes of the built-in service have these.
        iniset "$TEMPEST_CONFIG" compute-feature-enabled attach_encrypted_volume False
        iniset "$TEMPEST_CONFIG" compute-feature-enabled swap_volume False
    fi
    ;;
"unstack "*) nova_lite_stop ;;
"clean "*)
    nova_lite_run remove_files_and_links
    nova_lite_run remove_users
    ;;
esac
