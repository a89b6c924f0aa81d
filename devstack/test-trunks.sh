#!/bin/bash
# Test trunks with real packets, as root. It takes some minutes of a core beside the installation, and stacks nothing.
#
# The host is a machine of qemu whose kernel is a distribution's, which has VLANs. Its programs are this machine's: it has
# the root file system by virtiofs, and writes into its memory only. In it tests/integration/network/test_trunks.py runs.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages python guest machine testing; do
    source "$TOP/devstack/lib/$component.sh"
done

# Modules for the root file system, in the order of dependence. The kernel loads the others itself.
MODULES="drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_modern_dev
    drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci fs/fuse/fuse fs/fuse/virtiofs fs/overlayfs/overlay"

# The init after that: runs the test. Its last line is the status.
second_init() {
    cat <<INIT
export PATH=$TEST_VENV/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
mkdir -p /lib/modules
cp -r $modules /lib/modules/
for place in /run /tmp /var/tmp /dev/shm; do
    mkdir -p \$place
    mount -t tmpfs memory \$place
done
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
busybox depmod
printf '#!/bin/sh\\nexec busybox modprobe "\$@"\\n' >/run/modprobe
chmod 755 /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
busybox modprobe br_netfilter
ip link set lo up
cd $TOP
PYTHONPATH=$TOP PYTHONDONTWRITEBYTECODE=1 pytest --quiet --no-header --tb=short --color=no --disable-warnings -rs \\
    -p no:cacheprovider -p no:xdist tests/integration/network/test_trunks.py
echo "trunks: \$?"
echo o >/proc/sysrq-trigger
sleep 60
INIT
}

run_machine() {
    timeout 3600 qemu-system-x86_64 -machine q35,accel=tcg,memory-backend=memory -cpu max -m 2G -nodefaults \
        -no-reboot -object memory-backend-memfd,id=memory,size=2G,share=on -chardev "socket,id=files,path=$work/socket" \
        -device vhost-user-fs-pci,chardev=files,tag=files -display none -serial stdio -kernel "$1" \
        -initrd "$work/initrd.img" -append "console=ttyS0 quiet panic=-1 mitigations=off rdinit=/init" </dev/null |
        tee "$work/console"
}

need_root
LOG=$(mktemp /tmp/nova-lite-test.XXXXXX.log)
work=$(mktemp --directory)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; remove_tree "$work"' EXIT

say "Testing $TOP with trunks (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
step "Fetching a kernel" fetch_kernel
# The newest one of those that build_guest chooses from.
kernel=$(find "$GUEST/kernel/boot" /boot -name 'vmlinuz-*' 2>/dev/null | sort --version-sort | tail -n 1 || true)
modules=$(realpath "$(dirname "$kernel")/../lib/modules/${kernel##*/vmlinuz-}")
step "Making the machine's ramdisk" make_ramdisk "$kernel"
share_files &
wait_for 10 test -S "$work/socket"
say "Running the machine"
run_machine "$kernel" || true
grep --quiet '^trunks: 0' "$work/console" || die "failed after $(clock)."
say "All of it passed."
