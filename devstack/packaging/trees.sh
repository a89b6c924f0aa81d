# Removal of directories with their content, as nova_lite/base/trees.py does it. For sh and bash. devstack/lib/common.sh has it, and
# devstack/packaging/debian/rules puts it into the scripts of the packages.

# remove_tree PATH...: remove files, links, and directories with their content. A directory or file on which something is mounted
# stays, with its content and the directories above it. This is printed. A link is removed, and not followed.
remove_tree() {
    local path entry
    for path in "$@"; do
        if [ ! -e "$path" ] && [ ! -L "$path" ]; then
            continue
        elif is_mounted "$path"; then
            echo "$path is left: something is mounted there." >&2
        elif [ -d "$path" ] && [ ! -L "$path" ] && is_mounted "$path" below; then
            for entry in "$path"/* "$path"/.[!.]* "$path"/..?*; do
                remove_tree "$entry"
            done
            rmdir --ignore-fail-on-non-empty -- "$path"
        else
            # A file system that is mounted meanwhile stays as well.
            rm -rf --one-file-system --preserve-root=all -- "$path" || echo "$path is left." >&2
        fi
    done
}

# is_mounted PATH [below]: check whether something is mounted there, or below it. The kernel lists mounts of the same file system,
# which a look at devices misses.
is_mounted() {
    local path number parent device root place rest
    [ -r /proc/self/mountinfo ] || return 0
    [ ! -L "$1" ] || return 1
    path=$(readlink -f -- "$1" | sed 's/\\/\\134/g; s/ /\\040/g; s/\t/\\011/g')
    while read -r number parent device root place rest; do
        case ${2:-at}:$place in at:"$path" | below:"$path"/*) return 0 ;; esac
    done </proc/self/mountinfo
    return 1
}
