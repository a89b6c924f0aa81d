#!/bin/bash
# A further libvirt host on this machine: a libvirtd with namespaces of its own (mounts, host name, network), as root.
#
#   devstack/libvirt-host.sh start NUMBER        (2 to 99; again: it is running already)
#   devstack/libvirt-host.sh stop NUMBER         its guests, networks and daemons end, and its directories go
#   devstack/libvirt-host.sh enter NUMBER COMMAND...   run a command there
#   devstack/libvirt-host.sh status NUMBER       0: it answers
#
# Host NUMBER is 169.254.76.NUMBER, this machine itself 169.254.76.1, on the bridge nl-hosts. Files are those of this
# machine, except libvirt's own. From everywhere, the libvirtd of an address answers at
# qemu+unix:///system?socket=/run/nova-lite-hosts/ADDRESS/libvirt-sock.
set -euo pipefail
export LC_ALL=C.UTF-8
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/packaging/trees.sh"

HOSTS=/run/nova-lite-hosts
BRIDGE=nl-hosts
NETWORK=169.254.76
MODULES=(run:/run/libvirt etc:/etc/libvirt lib:/var/lib/libvirt cache:/var/cache/libvirt log:/var/log/libvirt
    netns:/run/netns)

die() {
    echo "libvirt-host.sh: $*" >&2
    exit 1
}

# wait_until SECONDS COMMAND...
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

virsh_there() {
    timeout 60 virsh --quiet --connect "qemu+unix:///system?socket=$HOSTS/$ADDRESS/libvirt-sock" "$@"
}

# The pid of its libvirtd, if the process of the pid file is one, with other mounts than ours.
daemon() {
    local pid
    pid=$(cat "$BASE/libvirtd.pid" 2>/dev/null) || return 1
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == libvirtd ]] || return 1
    [[ $(readlink "/proc/$pid/ns/mnt") != "$(readlink /proc/self/ns/mnt)" ]] || return 1
    echo "$pid"
}

# Whatever runs in the namespaces of its libvirtd: qemu, dnsmasq, and libvirtd itself.
processes() {
    local namespace process
    namespace=$(readlink "/proc/$1/ns/mnt")
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/ns/mnt" 2>/dev/null) != "$namespace" ]] || echo "${process#/proc/}"
    done
}

make_network() {
    ip link show "$BRIDGE" >/dev/null 2>&1 || ip link add "$BRIDGE" type bridge || ip link show "$BRIDGE" >/dev/null
    ip address replace "$NETWORK.1/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    lead_to_broker
    # This machine's libvirtd, at the address that it has here.
    install -d -m 0755 "$HOSTS" "$HOSTS/$NETWORK.1"
    mountpoint --quiet "$HOSTS/$NETWORK.1" || mount --bind /run/libvirt "$HOSTS/$NETWORK.1"
}

# The broker listens on loopback alone: for the hosts of this bridge it is at this machine's address there.
lead_to_broker() {
    sysctl --quiet --write "net.ipv4.conf.$BRIDGE.route_localnet=1"
    nft --file - <<RULES
table ip nova-lite-hosts
delete table ip nova-lite-hosts
table ip nova-lite-hosts {
    chain not_loopback {
        type filter hook prerouting priority raw;
        iifname "$BRIDGE" ip daddr 127.0.0.0/8 drop
    }
    chain broker {
        type nat hook prerouting priority dstnat;
        iifname "$BRIDGE" ip daddr $NETWORK.1 tcp dport 5672 dnat to 127.0.0.1
    }
}
RULES
}

remove_network() {
    compgen -G "$HOSTS/.[0-9]*" >/dev/null && return
    if mountpoint --quiet "$HOSTS/$NETWORK.1"; then
        umount "$HOSTS/$NETWORK.1"
    fi
    rmdir "$HOSTS/$NETWORK.1" "$HOSTS" 2>/dev/null || true
    ! ip link show "$BRIDGE" >/dev/null 2>&1 || ip link delete "$BRIDGE"
    ! nft list table ip nova-lite-hosts >/dev/null 2>&1 || nft delete table ip nova-lite-hosts
}

make_directories() {
    install -d -m 0755 "$BASE"/{etc,run,lib,cache,log,netns} "$BASE"/lib/{dnsmasq,images,boot} "$BASE/log/qemu"
    install -d -m 0755 "$HOSTS/$ADDRESS"
    install -d -m 0750 -o libvirt-qemu -g libvirt-qemu "$BASE/lib/qemu"
    cp -a /etc/libvirt/. "$BASE/etc/"
    # Definitions are this machine's; the filters are everybody's, and so are the secrets of kinds of storage (Ceph).
    remove_tree "$BASE"/etc/qemu/*.xml "$BASE"/etc/qemu/autostart "$BASE"/etc/qemu/networks "$BASE"/etc/storage
    printf 'host_uuid = "%s"\n' "$(cat /proc/sys/kernel/random/uuid)" >>"$BASE/etc/libvirtd.conf"
    # Certificates of this host: `nova-lite-manage certificates create --output` writes them to $HOST_CERTIFICATES, or there.
    install -d -m 0755 "$BASE/lib/pki"
    [[ ! -d ${HOST_CERTIFICATES:-} ]] || cp -a "$HOST_CERTIFICATES/." "$BASE/lib/pki/"
    echo 'migrate_tls_x509_cert_dir = "/var/lib/libvirt/pki"' >>"$BASE/etc/qemu.conf"
    [[ ! -d $BASE/lib/pki/consoles ]] || secure_consoles
    [[ -z ${HOST_PKI:-} ]] || listen_by_tls
    # There is no virtlogd here.
    echo 'stdio_handler = "file"' >>"$BASE/etc/qemu.conf"
}

# VNC and SPICE servers and serial ports show the host's certificate. SPICE accepts every client, the others only proxies.
secure_consoles() {
    cat >>"$BASE/etc/qemu.conf" <<SETTINGS
vnc_tls = 1
vnc_tls_x509_verify = 1
vnc_tls_x509_cert_dir = "/var/lib/libvirt/pki/consoles"
spice_tls = 1
spice_tls_x509_cert_dir = "/var/lib/libvirt/pki/consoles"
chardev_tls_x509_verify = 1
chardev_tls_x509_cert_dir = "/var/lib/libvirt/pki/consoles"
SETTINGS
}

# With certificates in $HOST_PKI (cacert.pem, servercert.pem, serverkey.pem), its libvirtd answers at qemu+tls://ADDRESS/system.
listen_by_tls() {
    install -d -m 0700 "$BASE/etc/pki"
    install -m 0600 "$HOST_PKI"/{cacert,servercert,serverkey}.pem "$BASE/etc/pki"
    cat >>"$BASE/etc/libvirtd.conf" <<SETTINGS
listen_tls = 1
listen_addr = "$ADDRESS"
ca_file = "/etc/libvirt/pki/cacert.pem"
cert_file = "/etc/libvirt/pki/servercert.pem"
key_file = "/etc/libvirt/pki/serverkey.pem"
SETTINGS
}

# In the namespaces: libvirt's directories are the host's own, and /sys shows its own network.
serve() {
    local pair name cgroups
    for pair in "${MODULES[@]}"; do
        install -d "${pair#*:}"
        mount --bind "$BASE/${pair%%:*}" "${pair#*:}"
    done
    hostname "$(hostname)-$NUMBER"
    cgroups=$(mktemp -d)
    mount --rbind /sys/fs/cgroup "$cgroups"
    mount -t sysfs sysfs /sys
    mount --rbind "$cgroups" /sys/fs/cgroup
    umount --lazy "$cgroups"
    rmdir "$cgroups"
    ip link set lo up
    : >"$BASE/unshared"
    wait_until 10 ip link show eth0 || die "host $NUMBER got no network interface."
    ip address add "$ADDRESS/24" dev eth0
    ip link set eth0 up
    [[ ! -e $BASE/etc/pki ]] || set -- --listen
    exec libvirtd "$@" --pid-file "$BASE/libvirtd.pid" >>"$BASE/log/libvirtd.log" 2>&1
}

start() {
    local pid
    ! daemon >/dev/null || virsh_there version >/dev/null || die "host $NUMBER runs and does not answer; stop it first."
    ! daemon >/dev/null || return 0
    [[ -S /run/libvirt/libvirt-sock ]] || die "this machine's own libvirtd does not run."
    stop # what is left of a start that was killed
    make_network
    make_directories
    setsid unshare --mount --uts --net "$SELF" serve "$NUMBER" </dev/null >"$BASE/start.log" 2>&1 &
    pid=$!
    echo "$pid" >"$BASE/starting.pid"
    if ! wait_until 20 test -e "$BASE/unshared"; then
        kill "$pid" 2>/dev/null || true
        die "host $NUMBER does not start: $(tail -n 3 "$BASE/start.log")"
    fi
    ip link add "$LINK" type veth peer name eth0 netns "$pid"
    ip link set "$LINK" master "$BRIDGE" up
    # Its socket, at its address, for everybody.
    ln -sfn "$BASE/run/libvirt-sock" "$HOSTS/$ADDRESS/libvirt-sock"
    wait_until 60 virsh_there version ||
        die "the libvirtd of host $NUMBER does not answer: $(tail -n 3 "$BASE/start.log" "$BASE/log/libvirtd.log")"
    rm -f "$BASE/starting.pid"
}

stop() {
    local pid process id
    if pid=$(daemon); then
        for id in $(virsh_there list --uuid || true); do
            virsh_there destroy "$id" || true # it may have ended meanwhile
        done
        for id in $(virsh_there net-list --name || true); do
            virsh_there net-destroy "$id" || true
        done
        for process in $(processes "$pid"); do
            [[ $process == "$pid" ]] || kill "$process" 2>/dev/null || true
        done
        kill "$pid"
        if ! wait_until 20 test ! -e "/proc/$pid"; then
            kill -KILL "$pid" 2>/dev/null || true
            wait_until 5 test ! -e "/proc/$pid" || die "the libvirtd of host $NUMBER (process $pid) does not end."
        fi
    elif pid=$(cat "$BASE/starting.pid" 2>/dev/null) && [[ $(cat "/proc/$pid/comm" 2>/dev/null) == libvirt-host* ]]; then
        kill "$pid" 2>/dev/null || true
    fi
    # The interface may end with its network namespace meanwhile.
    ip link delete "$LINK" 2>/dev/null || ! ip link show "$LINK" >/dev/null 2>&1 || die "$LINK cannot be deleted."
    remove_tree "$BASE" "${HOSTS:?}/$ADDRESS"
    remove_network
}

enter() {
    local pid
    pid=$(daemon) || die "host $NUMBER does not run."
    exec nsenter --target "$pid" --mount --uts --net -- "$@"
}

((EUID == 0)) || die "needs root."
[[ ${2-} =~ ^[1-9][0-9]?$ && $2 != 1 ]] || die "usage: libvirt-host.sh start|stop|enter|status NUMBER, from 2 to 99."
ACTION=$1 NUMBER=$2
shift 2
SELF=$(readlink -f "${BASH_SOURCE[0]}")
ADDRESS=$NETWORK.$NUMBER
BASE=$HOSTS/.$NUMBER
LINK=nl-host$NUMBER
case $ACTION in
serve) serve ;;
start | stop)
    # Two starts at a time would make the bridge twice.
    exec {lock}>/run/nova-lite-hosts.lock
    flock --wait 120 "$lock" || die "another start or stop does not end."
    "$ACTION" {lock}>&-
    ;;
enter) enter "$@" ;;
status) daemon >/dev/null && virsh_there version >/dev/null ;;
*) die "there is no $ACTION." ;;
esac
