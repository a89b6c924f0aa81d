# The hypervisor's daemons, and the removal of all that is ours on it. Sourced, never run.

virsh_system() {
    virsh --connect qemu:///system --quiet "$@"
}

libvirt_answers() {
    virsh_system version
}

# /dev/kvm as the distribution's udev rule has it, where no udev sees to it. One that is root's alone is found by the qemu
# that libvirt asks for its capabilities, and not by libvirt itself, which therefore asks again more than ten times for
# each guest. libvirtd, if it runs, sees the change at once.
open_kvm() {
    local was
    [[ -c /dev/kvm && ! -S /run/udev/control ]] && getent group kvm >/dev/null || return 0
    was=$(stat --format '%U:%G %a' /dev/kvm)
    [[ $was != *:kvm\ 660 && $was != *\ 666 ]] || return 0
    if ! own_kvm; then
        echo "/dev/kvm is $was, with which each guest takes a minute to start; it is another machine's, which has to change it"
        return 0
    fi
    chgrp kvm /dev/kvm
    chmod 660 /dev/kvm
    echo "/dev/kvm was $was, with which each guest takes a minute to start; now group kvm may open it"
}

# Whether /dev/kvm is this machine's own: made by the kernel in this root's devtmpfs, or a node in the /dev of a container. A
# bind mount has that of the host, and a change of its group would change it for the host and all its other containers.
own_kvm() {
    [[ $(stat --format %t:%T /dev/kvm) == a:e8 ]] || return
    [[ $(findmnt --noheadings --output TARGET,FSTYPE --raw --target /dev/kvm | tail --lines=1) =~ ^/dev\ (devtmpfs|tmpfs)$ ]]
}

# The authority of TPMs for its user. A libvirtd that was there before swtpm ran it as root until it was restarted.
own_tpm_authority() {
    [[ ! -d /var/lib/swtpm-localca ]] || chown --recursive "$(stat --format %U /var/lib/swtpm-localca)" /var/lib/swtpm-localca
}

start_libvirt() {
    open_kvm
    own_tpm_authority
    if libvirt_answers >/dev/null 2>&1; then
        return
    elif has_systemd; then
        systemctl enable --now virtlogd.socket libvirtd
    else
        # Further hosts have daemons of the same names.
        pgrep --pidfile /run/virtlogd.pid --exact virtlogd >/dev/null 2>&1 || virtlogd -d
        pgrep --pidfile /run/libvirtd.pid --exact libvirtd >/dev/null 2>&1 || libvirtd -d
    fi
    wait_for 30 libvirt_answers
}

# A libvirtd for each compute daemon but the first, which has this machine's.
start_libvirt_hosts() {
    local number
    install -m 0755 "$TOP/devstack/libvirt-host.sh" "$LIBVIRT_HOST"
    install -D -m 0644 "$TOP/devstack/packaging/trees.sh" "$(dirname "$LIBVIRT_HOST")/packaging/trees.sh"
    for number in $(libvirt_hosts); do
        if has_systemd; then
            systemctl start "nova-lite-libvirt@$number"
        else
            HOST_CERTIFICATES=$(host_certificates "compute-$number") "$LIBVIRT_HOST" start "$number"
        fi
        echo "libvirt host $number is $HOSTS_NETWORK.$number: $TOP/devstack/libvirt-host.sh enter $number virsh list"
    done
}

# With all that is on them.
remove_libvirt_hosts() {
    local number
    for number in $(libvirt_hosts); do
        "$TOP/devstack/libvirt-host.sh" stop "$number"
    done
}

# Guests of this machine's compute hosts, and the networks made for them. Domains and networks of others stay, as does
# a network that anybody else's guest is on.
remove_guests() {
    local id
    command -v virsh >/dev/null || return 0
    start_libvirt
    for id in $(virsh_system list --all --uuid); do
        [[ $(guest_host "$id") =~ ^$(hostname)(-[0-9]+)?$ ]] || continue
        virsh_system destroy "$id" || true # it may be off
        virsh_system undefine "$id" --managed-save --snapshots-metadata --checkpoints-metadata --nvram
    done
    for id in $(virsh_system net-list --all --name | grep '^nova-lite-'); do
        [[ $(virsh_system net-dumpxml "$id") != *" connections='"* ]] || continue
        virsh_system net-destroy "$id" || true # it may be inactive
        virsh_system net-undefine "$id"
    done
    (source "$TOP/devstack/packaging/purge.sh" && remove_realms)
    local family host table
    host=$(hostname)
    nft list tables 2>/dev/null | grep -E " nova_lite_(ports|spoofing|migrations|links|qos)_${host//[^A-Za-z0-9]/_}(_[0-9]+)?$" |
        while read -r _ family table; do
            nft delete table "$family" "$table"
        done || true
    remove_tunnels
    # Filters of interfaces with IPv6; one that another's guest uses stays.
    for id in $(virsh_system nwfilter-list | grep -oE 'nova-lite-clean-[a-z0-9-]+' | sort --reverse || true); do
        virsh_system nwfilter-undefine "$id" 2>/dev/null || true
    done
    for id in $(cat "$STATE"/instances/floating@*.json 2>/dev/null | tr -c '0-9.\n' ' '); do
        ip address delete "$id/32" dev lo 2>/dev/null || true # it may not be there
    done
    [[ ! -d /var/log/libvirt/qemu ]] || find /var/log/libvirt/qemu -name 'instance-????????-????-????-????-????????????.log*' -delete
}

# What networks with a VNI had besides: devices whose bridge is gone, and this machine's tables.
remove_tunnels() {
    local device family table host
    for device in /sys/class/net/nlvx*; do
        [[ ! -e $device || -e $device/master ]] || ip link delete "${device##*/}"
    done
    host=$(hostname)
    nft list tables 2>/dev/null | grep -E " nova_lite_tunnels_${host//[^A-Za-z0-9]/_}(_[0-9]+)?$" |
        while read -r _ family table; do
            nft delete table "$family" "$table"
        done || true
}

# guest_host DOMAIN: the compute host that made it, by its metadata; nothing for a domain that is not ours.
guest_host() {
    virsh_system metadata "$1" urn:nova-lite:instance:1 2>/dev/null | sed -n 's|.*<\([a-z-]*:\)\?host>\([^<]*\)</.*|\2|p'
}
