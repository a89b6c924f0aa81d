# A machine of qemu with the programs of this one: it has the root file system by virtiofs, and writes into its memory only.
# Sourced, never run. The script that sources it names its MODULES, its second_init, and in $work a directory.
# shellcheck disable=SC2154

# The init of the initial ramdisk: makes a root file system of this machine's files, and goes on there.
first_init() {
    cat <<'INIT'
#!/bin/sh
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
while read -r module; do
    insmod "/lib/$module.ko"
done </lib/order
mkdir -p /files /memory /root
mount -t virtiofs files /files
mount -t tmpfs memory /memory
mkdir /memory/upper /memory/work
mount -t overlay root -o lowerdir=/files,upperdir=/memory/upper,workdir=/memory/work /root
cp /second_init /root/
for place in dev proc sys; do
    mount --move /$place /root/$place
done
exec switch_root /root /bin/bash /second_init
INIT
}

# make_ramdisk KERNEL
make_ramdisk() {
    local root=$work/root drivers module file tool
    drivers=$(dirname "$1")/../lib/modules/${1##*/vmlinuz-}/kernel
    mkdir -p "$root"/{bin,lib,dev,proc,sys}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for tool in sh mount insmod mkdir cp switch_root; do
        ln -s busybox "$root/bin/$tool"
    done
    for module in $MODULES; do
        for file in "$drivers/$module".ko*; do
            case $file in
            *.ko) cat "$file" ;;
            *.zst) zstd --quiet --decompress --stdout "$file" ;;
            *.xz) xz --decompress --stdout "$file" ;;
            *) continue ;;
            esac >"$root/lib/${module##*/}.ko"
            echo "${module##*/}" >>"$root/lib/order"
        done
    done
    first_init >"$root/init"
    second_init >"$root/second_init"
    chmod 755 "$root/init"
    (cd "$root" && find . -print0 | cpio --null --quiet --create --format=newc) >"$work/initrd.img"
}

# Programs of this machine for the other one, which can change nothing here. Mounts below the root are not among them.
share_files() {
    local program
    program=$(find /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd 2>/dev/null | head -n 1 || true)
    mkdir "$work/files"
    exec unshare --mount bash -c "mount --bind / $work/files && mount -o remount,bind,ro $work/files &&
        exec $program --socket-path=$work/socket -o source=$work/files,cache=always" >>"$LOG" 2>&1
}
