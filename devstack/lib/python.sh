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

# install_checkout DIRECTORY: a copy of the checkout and all it depends on, and the command line client. A venv of the
# same dependencies only has the copy replaced, which takes seconds.
install_checkout() {
    local directory=$1 wanted
    make_venv "$directory"
    sources=$(mktemp -d) # not local: the trap outlives this function
    trap 'rm -rf "$sources"' EXIT
    tar -C "$TOP" --exclude=__pycache__ -cf - setup.cfg pyproject.toml README.md LICENSE nova_lite | tar -C "$sources" -xf -
    wanted=$(sed -n '/^install_requires/,/^\[/p' "$TOP/setup.cfg" | sha256sum)
    if [[ $(cat "$directory/.dependencies" 2>/dev/null) == "$wanted" ]]; then
        "$directory/bin/pip" install --quiet --no-deps --no-build-isolation --force-reinstall "$sources"
        return
    fi
    "$directory/bin/pip" install --quiet --upgrade 'setuptools>=68' wheel
    "$directory/bin/pip" install --quiet "$sources" python-openstackclient
    echo "$wanted" >"$directory/.dependencies"
}

# install_for_tests DIRECTORY: the checkout itself (editable) with what its tests need. Writes into the checkout.
install_for_tests() {
    local directory=$1 wanted
    make_venv "$directory"
    wanted=$(sha256sum <"$TOP/setup.cfg")
    [[ $(cat "$directory/.dependencies" 2>/dev/null) != "$wanted" ]] || return 0
    "$directory/bin/pip" install --quiet --upgrade 'setuptools>=68' wheel
    "$directory/bin/pip" install --quiet --editable "${TOP}[test]"
    echo "$wanted" >"$directory/.dependencies"
}
