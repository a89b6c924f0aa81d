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
    done
}

# make_account PROJECT ROLE[,ROLE]; in `make_accounts`, whose variables it reads.
make_account() {
    local project=$1 role=${2%,*} user=$1-${2%,*}
    if ! grep -qxF -- "$project" <<<"$projects"; then
        manage project create "$project" --description "For tests"
        projects+=$'\n'$project
    fi
    if ! grep -qxF -- "$user" <<<"$users"; then
        manage user create "$user" --project "$project" --role "$role" <"$directory/password"
    elif ((password_is_new)); then
        manage user set-password "$user" <"$directory/password"
    fi
    [[ $2 == "$role" ]] || manage user grant "$user" --project "$project" --role "${2#*,}"
    local types=
    [[ $role != admin ]] || types=", types: [admin]"
    echo "- {username: $user, project_name: $project, password: '$(<"$directory/password")', roles: [$2]$types}" \
        >>"$directory/accounts.yaml"
}
