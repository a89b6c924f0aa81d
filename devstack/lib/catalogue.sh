# What a new cloud holds: flavors, the default network, images. Sourced, never run.

# name, id, MB of memory, vCPUs, GB of disk
FLAVORS="
m1.nano    42   128 1   1
m1.micro   84   192 1   1
m1.tiny     1   512 1   1
m1.small    2  2048 1  20
m1.medium   3  4096 2  40
m1.large    4  8192 4  80
m1.xlarge   5 16384 8 160
"
FIRST_FLAVOR=42

# Ids of images are derived from their bytes, so that a changed image is a new one and an unchanged one is known.
image_id() {
    cat "$@" | sha256sum | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-4\3-8\4-\5/'
}

manage() {
    "$VENV/bin/nova-lite-manage" "$@"
}

# Several commands, one a line of standard input, in one process: starting Python costs more than most of them.
manage_each() {
    "$VENV/bin/python" -c '
import shlex, sys
from nova_lite.cmd import manage
from oslo_config import cfg
for line in sys.stdin:
    cfg.CONF.reset()
    if manage.main(shlex.split(line)):
        sys.exit("failed: nova-lite-manage " + line)
'
}

# listed NOUN COLUMN...: those columns of all there are, one a line.
listed() {
    local noun=$1
    shift
    manage "$noun" list --format json | "$VENV/bin/python" -c '
import json, sys
for row in json.load(sys.stdin):
    print(*(row[column] for column in sys.argv[1:]))
' "$@"
}

create_flavors() {
    local name id ram vcpus disk known
    known=$(listed flavor name)
    while read -r name id ram vcpus disk; do
        [[ -z $name ]] || grep -qxF -- "$name" <<<"$known" ||
            echo "flavor create $name --id $id --ram $ram --vcpus $vcpus --disk $disk"
    done <<<"$FLAVORS" | manage_each
}

create_network() {
    ! grep -qxF private <<<"$(listed network name)" || return 0
    refuse_overlap
    manage network create private "$NETWORK_CIDR" --bridge "$NETWORK_BRIDGE" --default \
        ${NETWORK_CIDR6:+--cidr6 "$NETWORK_CIDR6"} ${NETWORK_VNI:+--vxlan "$NETWORK_VNI"}
}

create_floating_pool() {
    grep -qxF public <<<"$(listed floating-pool name)" || manage floating-pool create public "$FLOATING_CIDR"
}

# A guest network with addresses that this machine already reaches elsewhere would cut it off from them.
refuse_overlap() {
    ip -4 -json route show | "$VENV/bin/python" -c '
import ipaddress, json, sys
ours, bridge = ipaddress.ip_network(sys.argv[1]), sys.argv[2]
for route in json.load(sys.stdin):
    if route["dst"] != "default" and route["dev"] != bridge and ours.overlaps(ipaddress.ip_network(route["dst"])):
        sys.exit("NETWORK_CIDR=%s overlaps with %s on %s: choose another." % (ours, route["dst"], route["dev"]))
' "$NETWORK_CIDR" "$NETWORK_BRIDGE"
}

# import_command ID NAME FILE [ARGUMENT...]: the line for `replace_images`.
import_command() {
    local id=$1 name=$2 file=$3
    shift 3
    printf '%q ' image import --id "$id" --name "$name" "$@" "$file"
    echo
}

# replace_images: import those of standard input, lines of `import_command`; an older one of the same name makes room.
replace_images() {
    local commands id name owner=
    if [[ $AUTH == keystone ]]; then
        upload_images
        return
    fi
    # Clients look for the owner of an image, for example Horizon.
    [[ $AUTH != standalone ]] || owner=$(listed project id name | awk '$2 == "admin" { print $1 }')
    commands=$(sed "s/^image import /&${owner:+--project $owner }/")
    {
        listed image id name | while read -r id name; do
            ! grep -qF -- "--name $name " <<<"$commands" || grep -qF -- "--id $id " <<<"$commands" || echo "image delete $id"
        done
        echo "$commands"
    } | manage_each
}

# The guest twice: as kernel, ramdisk and machine image (AMI style), and as a disk that boots by itself.
import_guest() {
    local kernel ramdisk
    kernel=$(image_id "$GUEST/image/vmlinuz")
    ramdisk=$(image_id "$GUEST/image/initrd.img")
    {
        import_command "$kernel" nova-lite-guest-kernel "$GUEST/image/vmlinuz" --disk-format aki --container-format aki
        import_command "$ramdisk" nova-lite-guest-ramdisk "$GUEST/image/initrd.img" --disk-format ari --container-format ari
        import_command "$(guest_image)" nova-lite-guest "$GUEST/image/root.img" --disk-format ami --container-format ami \
            --kernel-id "$kernel" --ramdisk-id "$ramdisk" --property "os_command_line=$(cat "$GUEST/image/cmdline")"
        import_command "$(image_id "$GUEST/image/disk.qcow2")" nova-lite-guest-disk "$GUEST/image/disk.qcow2" \
            --disk-format qcow2 --container-format bare
    } | replace_images
}

# With the fake driver nothing boots, so any bytes will do.
import_fake_guest() {
    local file=$STATE/fake-guest.img
    echo "an image for the fake driver" >"$file"
    import_command "$(image_id "$file")" nova-lite-guest "$file" --disk-format raw --container-format bare | replace_images
}

guest_image() {
    if [[ $VIRT_DRIVER == fake ]]; then
        image_id "$STATE/fake-guest.img"
    else
        image_id "$GUEST/image/root.img" "$GUEST/image/vmlinuz" "$GUEST/image/initrd.img" "$GUEST/image/cmdline"
    fi
}
