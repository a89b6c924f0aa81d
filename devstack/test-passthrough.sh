#!/bin/bash
# Test that a guest really uses a PCI device of its host, as root. It takes five minutes of a core beside the installation,
# and stacks nothing.
#
# The host is a machine of qemu with an IOMMU and an NVMe disk. Its programs are this machine's: it has the root file system
# by virtiofs, and writes into its memory only. In it tests/integration/libvirt/test_passthrough.py runs.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages python guest libvirt machine testing; do
    source "$TOP/devstack/lib/$component.sh"
done

# Modules of the kernel, in the order of dependence. Newer kernels lack some of them.
MODULES="drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_modern_dev
    drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci fs/fuse/fuse fs/fuse/virtiofs fs/overlayfs/overlay
    virt/lib/irqbypass drivers/vfio/vfio drivers/vfio/vfio_virqfd drivers/vfio/vfio_iommu_type1
    drivers/vfio/pci/vfio-pci-core drivers/vfio/pci/vfio-pci net/netfilter/nfnetlink lib/libcrc32c
    net/netfilter/nf_tables"

# The init after that: runs the test as a host does. Its last line is the status.
second_init() {
    cat <<INIT
export PATH=$TEST_VENV/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
for place in /run /tmp /dev/shm /etc/libvirt/qemu /var/lib/libvirt/qemu; do
    mkdir -p \$place
    mount -t tmpfs memory \$place
done
mkdir -p /dev/pts /run/lock
mount -t devpts devpts /dev/pts
ip link set lo up
hostname passthrough
virtlogd -d
libvirtd -d
until virsh --connect qemu:///system version; do
    sleep 1
done
cd $TOP
NOVA_LITE_PASSTHROUGH=$GUEST/image PYTHONDONTWRITEBYTECODE=1 pytest --quiet --no-header --tb=short --color=no \\
    --disable-warnings -p no:cacheprovider -p no:xdist tests/integration/libvirt/test_passthrough.py
echo "passthrough: \$?"
echo o >/proc/sysrq-trigger
sleep 60
INIT
}

# The machine's clock counts its instructions: no deadline passes because this machine is busy.
run_machine() {
    timeout 7200 qemu-system-x86_64 -machine q35,accel=tcg,memory-backend=memory -cpu qemu64 -m 3G -nodefaults -no-reboot \
        -icount shift=2 -rtc clock=vm -object memory-backend-memfd,id=memory,size=3G,share=on \
        -device intel-iommu,intremap=on -chardev "socket,id=files,path=$work/socket" \
        -device vhost-user-fs-pci,chardev=files,tag=files -drive "file=$work/nvme.img,if=none,id=disk,format=raw" \
        -device pcie-root-port,id=place,chassis=1,slot=1 -device nvme,bus=place,drive=disk,serial=passthrough \
        -display none -serial stdio -kernel "$1" -initrd "$work/initrd.img" \
        -append "console=ttyS0 quiet panic=-1 intel_iommu=on mitigations=off rdinit=/init" </dev/null | tee "$work/console"
}

need_root
LOG=$(mktemp /tmp/nova-lite-test.XXXXXX.log)
work=$(mktemp --directory)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; remove_tree "$work"' EXIT

say "Testing $TOP with a PCI device (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
step "Building the guest image" build_guest
# The newest one of those that build_guest chooses from.
kernel=$(find "$GUEST/kernel/boot" /boot -name 'vmlinuz-*' 2>/dev/null | sort --version-sort | tail -n 1 || true)
step "Making the machine's ramdisk" make_ramdisk "$kernel"
truncate --size 16M "$work/nvme.img"
share_files &
wait_for 10 test -S "$work/socket"
say "Running the machine"
run_machine "$kernel" || true
grep --quiet '^passthrough: 0' "$work/console" || die "failed after $(clock)."
say "All of it passed."
