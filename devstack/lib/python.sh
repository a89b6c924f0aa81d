# Python environments: the stack's own, and the checkout's for tests. Sourced, never run.

# The system's Python, whatever PATH says: its development files are what packages.sh installed.
system_python() {
    local candidate
    for candidate in /usr/bin/python3 /usr/bin/python3.1[1-9]; do
        if [[ -x $candidate ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            echo "$candidate"
            return
        fi
    done
    die "no Python 3.11 or later in /usr/bin."
}

# make_venv DIRECTORY: with the system's Python; an unusable one is made anew.
make_venv() {
    local directory=$1
    if ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
        "$(system_python)" -m venv --clear "$directory"
    fi
}

# install_locked DIRECTORY NAME: just what devstack/requirements/NAME.txt lists, files of other contents refused. What has
# no wheel (libvirt-python) is built with what build.txt lists.
install_locked() {
    local directory=$1 list wanted
    make_venv "$directory"
    wanted=$(cat "$TOP/devstack/requirements/"{build,"$2"}.txt | sha256sum)
    [[ $(cat "$directory/.dependencies" 2>/dev/null) != "$wanted" ]] || return 0
    for list in build "$2"; do
        "$directory/bin/pip" install --quiet --require-hashes --no-build-isolation -r "$TOP/devstack/requirements/$list.txt"
    done
    echo "$wanted" >"$directory/.dependencies"
}

# checkout_version DIRECTORY: the checkout's version by its tags, found with the tools of a virtual environment. The checkout may
# be another user's.
checkout_version() {
    (
        cd "$TOP" || exit
        GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="$TOP" "$1/bin/python" -m setuptools_scm
    )
}

# install_checkout DIRECTORY: a copy of the checkout with both of its distributions, all they depend on, and the command line
# client. Where that is there, only the copy is replaced, which takes seconds.
install_checkout() {
    local directory=$1 version
    install_locked "$directory" stack
    version=$(checkout_version "$directory")
    sources=$(mktemp -d) # not local: the trap outlives this function
    trap 'remove_tree "$sources"' EXIT
    # The package has a link to a file of etc/.
    tar -C "$TOP" --dereference --exclude=__pycache__ --exclude='*.egg-info' -cf - setup.cfg pyproject.toml README.md LICENSE \
        nova_lite conformance | tar -C "$sources" -xf -
    SETUPTOOLS_SCM_PRETEND_VERSION=$version "$directory/bin/pip" install --quiet --no-deps --no-build-isolation \
        --force-reinstall "$sources" "$sources/conformance"
}

# install_for_tests DIRECTORY: the checkout itself (both distributions, editable) with what its tests need. Writes into the
# checkout.
install_for_tests() {
    local directory=$1 wanted version
    install_locked "$directory" tests
    wanted=$(cat "$TOP/setup.cfg" "$TOP/pyproject.toml" "$TOP/conformance/pyproject.toml" | sha256sum)
    [[ $(cat "$directory/.checkout" 2>/dev/null) != "$wanted" ]] || return 0
    version=$(checkout_version "$directory")
    SETUPTOOLS_SCM_PRETEND_VERSION=$version "$directory/bin/pip" install --quiet --no-deps --no-build-isolation \
        --editable "$TOP" --editable "$TOP/conformance"
    echo "$wanted" >"$directory/.checkout"
}
