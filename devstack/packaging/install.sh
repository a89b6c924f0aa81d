#!/bin/bash
# Install all files of the Debian packages below debian/. Called by debian/rules in a copy of the checkout.
#
# Each role has a virtual environment of its own, with the versions that devstack/requirements lists. So a compute host has
# no SQLAlchemy, even beside a controller.
set -euo pipefail
top=$PWD
version=${SETUPTOOLS_SCM_PRETEND_VERSION_FOR_NOVA_LITE:?}
tools=$top/build-tools
common=$top/debian/nova-lite-common

python3 -m venv "$tools"
pip=("$tools/bin/python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install --require-hashes -r devstack/requirements/build.txt
"${pip[@]}" wheel --no-deps --no-build-isolation --wheel-dir "$tools/wheels" .

# programs ROLE: what its virtual environment has in bin, besides Python.
programs() {
    case $1 in
    controller) echo nova-lite-{api,conductor,manage,novncproxy,registrar,scheduler,serialproxy,setup,spicehtml5proxy,status} ;;
    compute) echo nova-lite-{compute,manage,send-disks,setup} ;;
    esac
}

# units ROLE
units() {
    case $1 in
    controller) echo nova-lite-{api,conductor,novncproxy,registrar,scheduler,serialproxy,spicehtml5proxy}.service ;;
    compute) echo nova-lite-compute{,@}.service ;;
    esac
}

# install_libraries ROLE: what has no wheel is built here, with what build.txt lists.
install_libraries() {
    local role=$1 wheels=$tools/$1 venv=$top/debian/nova-lite-$1/usr/lib/nova-lite/$1 name
    "${pip[@]}" wheel --require-hashes --no-deps --no-build-isolation --wheel-dir "$wheels" -r "devstack/requirements/$role.txt"
    python3 -m venv --without-pip "$venv"
    "$tools/bin/python" -m pip --python "$venv/bin/python" --quiet --disable-pip-version-check install --no-index --no-deps --no-compile \
        --find-links "$tools/wheels" "$wheels"/*.whl "nova_lite==$version"
    for name in "$venv"/bin/*; do
        case " $(programs "$role") python python3 " in
        *" ${name##*/} "*) ;;
        *) rm "$name" ;;
        esac
    done
    sed -i "1s|^#!.*|#!/usr/lib/nova-lite/$role/bin/python|" "$venv"/bin/nova-lite-*
    ln -sf /usr/bin/python3 "$venv/bin/python3"
    ln -sf python3 "$venv/bin/python"
    sed -i '/^command =/d' "$venv/pyvenv.cfg"
    # What no daemon loads: headers and manuals, where the package was built, and the tests of libraries.
    rm -rf "${venv:?}"/{include,lib64,share,etc,.gitignore} "$venv"/lib/python3*/site-packages/*.dist-info/direct_url.json
    rm -rf "$venv"/lib/python3*/site-packages/{*/tests,*/*/tests}
    # The module of Python 3.12 and older that legacy-cgi brings names a program in /usr/local.
    find "$venv/lib" -name cgi.py -exec sed -i '1{/^#!/d}' {} +
    find "$venv" -name '*.so*' -type f -exec chmod 0644 {} +
    find "$venv/lib" -type f ! -name '*.so*' -perm /111 -exec chmod 0644 {} +
}

install_units() {
    local role=$1 name
    for name in $(units "$role"); do
        sed "s|/opt/nova-lite/venv/bin/|/usr/lib/nova-lite/$role/bin/|" "etc/systemd/$name" |
            install -D -m 0644 /dev/stdin "debian/nova-lite-$role/usr/lib/systemd/system/$name"
    done
}

for role in controller compute; do
    install_libraries "$role"
    install_units "$role"
done
install -D -m 0644 etc/nova-lite/api-paste.ini debian/nova-lite-controller/etc/nova-lite/api-paste.ini
install -D -m 0644 etc/nova-lite/nova-lite.conf "$common/usr/share/doc/nova-lite-common/examples/nova-lite.conf"
install -D -m 0644 etc/sysusers.d/nova-lite.conf debian/nova-lite-common.sysusers
install -D -m 0644 etc/tmpfiles.d/nova-lite.conf debian/nova-lite-common.tmpfiles
install -D -m 0644 etc/logrotate.d/nova-lite "$common/etc/logrotate.d/nova-lite"
install -D -m 0755 devstack/packaging/nova-lite-command "$common/usr/bin/nova-lite-manage"
ln -s nova-lite-manage "$common/usr/bin/nova-lite-setup"
ln -s nova-lite-manage "$common/usr/bin/nova-lite-status"
