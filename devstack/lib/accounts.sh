# Projects and users that tests have for themselves, made with nova-lite-manage; they share one password. Sourced, never run.
# MANAGE, an array, is the nova-lite-manage command with its options.

manage() {
    "${MANAGE[@]}" "$@"
}

# use_manage COMMAND: the words of it, if it is there.
use_manage() {
    read -ra MANAGE <<<"$1"
    [[ -x $(command -v "${MANAGE[0]}") ]] || die "there is no ${MANAGE[0]}: run devstack/stack.sh first, or give --manage."
}

# listed NOUN: the names of all there are, one a line.
listed() {
    manage "$1" list --format json |
        "$(system_python)" -c 'import json, sys; print(*(row["name"] for row in json.load(sys.stdin)), sep="\n")'
}

# make_accounts DIRECTORY PREFIX PROJECT:ROLE[,ROLE]...: a user named PREFIX-PROJECT-ROLE (its first one) for each, where
# they are not yet, and accounts.yaml in DIRECTORY, which names them.
make_accounts() {
    local directory=$1 prefix=$2 account password_is_new=0 projects users
    shift 2
    if [[ ! -s $directory/password ]]; then
        (umask 077 && head -c 24 /dev/urandom | base64 >"$directory/password")
        password_is_new=1
    fi
    projects=$(listed project)
    users=$(listed user)
    (umask 077 && : >"$directory/accounts.yaml")
    for account; do
        make_account "$prefix-${account%:*}" "${account#*:}"
    done | manage_each "$directory/password"
}

# make_account PROJECT ROLE[,ROLE]; in `make_accounts`, whose variables it reads. Prints what is to be done.
make_account() {
    local project=$1 role=${2%,*} user=$1-${2%,*}
    if ! grep -qxF -- "$project" <<<"$projects"; then
        echo "project create $project --description 'For tests'"
        projects+=$'\n'$project
    fi
    if ! grep -qxF -- "$user" <<<"$users"; then
        echo "user create $user --project $project --role $role"
    elif ((password_is_new)); then
        echo "user set-password $user"
    fi
    [[ $2 == "$role" ]] || echo "user grant $user --project $project --role ${2#*,}"
    local types=
    [[ $role != admin ]] || types=", types: [admin]"
    echo "- {username: $user, project_name: $project, password: '$(<"$directory/password")', roles: [$2]$types}" \
        >>"$directory/accounts.yaml"
}

# manage_each PASSWORD_FILE: the commands of standard input, one a line, in one process, as starting Python costs more than
# most of them. Those that ask for a password are given that one.
manage_each() {
    "$(dirname "$(readlink -f "$(command -v "${MANAGE[0]}")")")/python" -c '
import shlex, sys
from nova_lite.cmd import manage
from oslo_config import cfg
password, *options = sys.argv[1:]
for line in sys.stdin.read().splitlines():
    cfg.CONF.reset()
    sys.stdin = open(password)
    if manage.main([*options, *shlex.split(line)]):
        sys.exit("failed: nova-lite-manage " + line)
' "$1" "${MANAGE[@]:1}"
}
