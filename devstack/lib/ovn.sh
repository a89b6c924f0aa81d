# Open vSwitch and OVN of this machine, by their packages, for NETWORK=neutron. Sourced, never run.

# Each package has a service of the same name, which are started in this order.
OVN_PACKAGES=(openvswitch-switch ovn-central ovn-host)
# With systemd these are the daemons of each; the service's own unit is up before they are, and down before.
declare -A OVN_UNITS=(
    [openvswitch-switch]="ovs-vswitchd.service ovsdb-server.service"
    [ovn-central]="ovn-northd.service ovn-ovsdb-server-*.service"
    [ovn-host]=ovn-controller.service
)
# Where its databases listen, for Neutron.
OVN_NORTHBOUND=tcp:127.0.0.1:6641
OVN_SOUTHBOUND=tcp:127.0.0.1:6642
OVN_BRIDGE=br-int
OVS_DATABASE=/etc/openvswitch/conf.db
OVN_DATABASES=/var/lib/ovn
# What was there before: names of running services, and paths of databases.
OVN_NOTE=$STATE/ovn-before

# ovn_service VERB NAME: the verb is start, stop, or runs, which says by its status whether the service runs.
ovn_service() {
    if has_systemd && [[ $1 == start ]]; then
        systemctl enable --now "$2"
    elif has_systemd && [[ $1 == stop ]]; then
        systemctl disable --now "$2"
        systemctl stop ${OVN_UNITS[$2]}
    elif [[ $1 != start ]] || ! ovn_processes runs "$2"; then
        ovn_processes "$@"
    fi
}

ovn_processes() {
    local ovs=/usr/share/openvswitch/scripts/ovs-ctl ovn=/usr/share/ovn/scripts/ovn-ctl
    case "$1 $2" in
    "start openvswitch-switch") $ovs --system-id=random start ;;
    "stop openvswitch-switch") $ovs stop ;;
    "runs openvswitch-switch") $ovs status ;;
    "start ovn-central") $ovn start_northd ;;
    "stop ovn-central") $ovn stop_northd ;;
    "runs ovn-central") $ovn status_northd ;;
    "start ovn-host") $ovn start_controller ;;
    "stop ovn-host") $ovn stop_controller ;;
    "runs ovn-host") $ovn status_controller ;;
    esac
}

# Before packages are installed, which may start the services.
note_ovn() {
    local name
    [[ ! -e $OVN_NOTE ]] || return 0
    refuse_others_ovn
    install -d -m 0755 "$STATE"
    {
        for name in "${OVN_PACKAGES[@]}"; do
            ! ovn_service runs "$name" >/dev/null 2>&1 || echo "$name"
        done
        [[ ! -e $OVS_DATABASE ]] || echo "$OVS_DATABASE"
    } >"$OVN_NOTE.new"
    mv "$OVN_NOTE.new" "$OVN_NOTE"
}

# One Open vSwitch is part of one OVN only.
refuse_others_ovn() {
    local table
    ! database_has "$OVS_DATABASE" Open_vSwitch Open_vSwitch '"ovn-remote"' ||
        die "Open vSwitch of this machine is part of an OVN already (ovs-vsctl get Open_vSwitch . external_ids:ovn-remote). NETWORK=neutron needs a machine without."
    # OVN's controller makes the bridge even before it is part of an OVN.
    ovn_service runs ovn-host >/dev/null 2>&1 || ! database_has "$OVS_DATABASE" Open_vSwitch Bridge "\"$OVN_BRIDGE\"" ||
        die "Open vSwitch of this machine has a bridge $OVN_BRIDGE already, which NETWORK=neutron needs for OVN. Remove it first: ovs-vsctl del-br $OVN_BRIDGE"
    for table in Logical_Switch Logical_Router; do
        ! database_has "$OVN_DATABASES/ovnnb_db.db" OVN_Northbound "$table" '"name"' ||
            die "this machine has an OVN with networks of somebody else's (ovn-nbctl show). NETWORK=neutron needs a machine without."
    done
}

# database_has FILE DATABASE TABLE TEXT: whether the table has it, as JSON.
database_has() {
    [[ -e $1 ]] && command -v ovsdb-tool >/dev/null || return 1
    ovsdb-tool query "$1" "[\"$2\",{\"op\":\"select\",\"table\":\"$3\",\"where\":[]}]" | grep -qF "$4"
}

# The kernel's datapath if it has one (ovs-ctl has tried to load it), else that of Open vSwitch itself. Guests of one host need
# no tunnel, and no module for it.
ovn_datapath() {
    if ovs-dpctl dump-dps >/dev/null 2>&1; then
        echo system
    else
        echo netdev
    fi
}

# This machine is the only chassis, named as its compute host, to which ports are bound.
set_up_ovn() {
    local datapath
    ovn_service start openvswitch-switch
    ovn_service start ovn-central
    wait_for 30 ovn-nbctl --timeout=5 set-connection ptcp:6641:127.0.0.1
    wait_for 30 ovn-sbctl --timeout=5 set-connection ptcp:6642:127.0.0.1
    wait_for 30 ovn-nbctl --timeout=5 --db="$OVN_NORTHBOUND" show
    datapath=$(ovn_datapath)
    echo "Datapath of Open vSwitch: $datapath"
    ovs-vsctl --timeout=30 set Open_vSwitch . "external_ids:hostname=$(compute_host compute)" \
        "external_ids:ovn-remote=$OVN_SOUTHBOUND" external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=127.0.0.1 \
        "external_ids:ovn-bridge=$OVN_BRIDGE" "external_ids:ovn-bridge-datapath-type=$datapath"
    ovn_service start ovn-host
    wait_for 60 chassis_is_there
}

chassis_is_there() {
    local name
    name=$(compute_host compute)
    ovn-sbctl --timeout=5 --db="$OVN_SOUTHBOUND" --bare --columns=name find Chassis "hostname=\"$name\"" | grep . &&
        ovs-vsctl --timeout=5 br-exists "$OVN_BRIDGE"
}

# All that is of OVN, and of Open vSwitch what is OVN's. Services that ran before run again.
remove_ovn() {
    local number name
    [[ -e $OVN_NOTE ]] || return 0
    ! ovn_service runs ovn-host || ovn_service stop ovn-host
    if ovn_service runs openvswitch-switch; then
        ovs-vsctl --timeout=30 --if-exists del-br "$OVN_BRIDGE" -- remove Open_vSwitch . external_ids \
            hostname ovn-remote ovn-encap-type ovn-encap-ip ovn-bridge ovn-bridge-datapath-type
    fi
    for ((number = ${#OVN_PACKAGES[@]} - 1; number >= 0; number--)); do
        name=${OVN_PACKAGES[number]}
        [[ $name == openvswitch-switch ]] && grep -qx "$name" "$OVN_NOTE" && continue
        ! ovn_service runs "$name" || ovn_service stop "$name"
    done
    rm -f "$OVN_DATABASES"/{ovn,.ovn}{nb,sb}_db.db*
    # The package has a link to the database there.
    grep -qx "$OVS_DATABASE" "$OVN_NOTE" || rm -f "$(readlink -f "$OVS_DATABASE")" "$(dirname "$OVS_DATABASE")/system-id.conf"
    for name in "${OVN_PACKAGES[@]}"; do
        ! grep -qx "$name" "$OVN_NOTE" || ovn_service start "$name"
    done
    rm "$OVN_NOTE"
}
