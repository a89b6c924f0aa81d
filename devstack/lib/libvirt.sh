# The hypervisor's daemons, and the removal of all that is ours on it. Sourced, never run.

virsh_system() {
    virsh --connect qemu:///system --quiet "$@"
}

libvirt_answers() {
    virsh_system version
}

start_libvirt() {
    if libvirt_answers >/dev/null 2>&1; then
        return
    elif has_systemd; then
        systemctl enable --now virtlogd.socket libvirtd
    else
        pgrep --exact virtlogd >/dev/null || virtlogd -d
        pgrep --exact libvirtd >/dev/null || libvirtd -d
    fi
    wait_for 30 libvirt_answers
}
