#!/usr/bin/env bash
# Installs what was built, or takes it away again: for `make install`, `make uninstall`, and the
# packages, whose files are what this installs (scripts/packages.sh).
#
#   scripts/install.sh install|uninstall
#
# PREFIX   where to (/usr/local)
# DESTDIR  a directory that stands for the root directory, for whoever makes a package (none)
# FROM     the directory of the built files (target/release)
#
# Nothing is started, no user is made: `make install` says what is left to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-}
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
from=${FROM:-${CARGO_TARGET_DIR:-target}/release}
[[ $what == install || $what == uninstall ]] || { echo "usage: $0 install|uninstall" >&2; exit 2; }
for name in PREFIX DESTDIR; do
    case ${!name:-/} in
        /*) ;;
        *) echo "$name=${!name}: must be an absolute path" >&2; exit 2 ;;
    esac
done
# A list of preloads is divided by both, and a unit's command line by spaces.
[[ $prefix != *[[:space:]:]* ]] || { echo "PREFIX=$prefix: has a space or a colon" >&2; exit 2; }
prefix=${prefix%/}

share=$prefix/share
zsh=${ZSH_COMPLETIONS:-$share/zsh/site-functions}
# What an administrator changes: kept if it was, and never overwritten.
configurations=(ginneld.toml switch.toml)
binaries=(ginnel ginnel-bench ginneld ginnel-prover ginnel-switch ginnel-cache)
libraries=(ginnel-go-loader libginnel_shim.so libginnel-fi.so)
units=(ginneld.service ginnel-prover.service ginnel-switch.service ginnel-cache@.service)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Each line: mode, the file, where to.
programs() {
    local name
    for name in "${binaries[@]}"; do echo "755 $from/$name $prefix/bin/$name"; done
    for name in "${libraries[@]}"; do
        case $name in
            *.so) echo "644 $from/$name $prefix/lib/ginnel/$name" ;;
            *) echo "755 $from/$name $prefix/lib/ginnel/$name" ;;
        esac
    done
}

# What is made of the command's own definitions, and of the unit.
made() {
    local page
    mkdir -p "$work/man"
    "$from/ginnel" generate man --into "$work/man"
    for page in "$work"/man/*; do echo "644 $page $share/man/man${page##*.}/${page##*/}"; done
    "$from/ginnel" generate completions --shell bash >"$work/bash"
    "$from/ginnel" generate completions --shell zsh >"$work/zsh"
    "$from/ginnel" generate completions --shell fish >"$work/fish"
    echo "644 $work/bash $share/bash-completion/completions/ginnel"
    echo "644 $work/zsh $zsh/_ginnel"
    echo "644 $work/fish $share/fish/vendor_completions.d/ginnel.fish"
    local unit
    for unit in "${units[@]}"; do
        sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" "packaging/$unit" >"$work/$unit"
        echo "644 $work/$unit $prefix/lib/systemd/system/$unit"
    done
    echo "644 packaging/ginnel.sysusers $prefix/lib/sysusers.d/ginnel.conf"
}

install_all() {
    local mode file to
    for file in "${binaries[@]}" "${libraries[@]}"; do
        [[ -f $from/$file ]] || { echo "$from/$file is not there: build it (make build)" >&2; exit 1; }
    done
    { programs; made; } >"$work/list"
    while read -r mode file to; do
        # Under another name first: programs that run go on with the file that they have.
        install -D -m "$mode" "$file" "$root$to.new"
        mv -f "$root$to.new" "$root$to"
    done <"$work/list"
    for file in "${configurations[@]}"; do
        [[ -e $root/etc/ginnel/$file ]] || install -D -m 644 "packaging/$file" "$root/etc/ginnel/$file"
    done
    [[ -n $root ]] || after
}

after() {
    echo "Installed below $prefix. For ginneld, on a host with virtual machines:"
    echo "    systemd-sysusers && systemctl daemon-reload && systemctl enable --now ginneld"
}

uninstall_all() {
    local to
    local -a gone
    # The list does not hang on what is built: manual pages are known by their names.
    gone=("${binaries[@]/#/$prefix/bin/}" "${libraries[@]/#/$prefix/lib/ginnel/}"
          "${units[@]/#/$prefix/lib/systemd/system/}" "$prefix"/lib/sysusers.d/ginnel.conf
          "$share"/bash-completion/completions/ginnel "$zsh/_ginnel" "$share"/fish/vendor_completions.d/ginnel.fish)
    for to in "$root$share"/man/man1/ginnel{,-*}.1 "$root$share"/man/man8/{ginneld,ginnel-prover,ginnel-switch}.8; do
        gone+=("${to#"$root"}")
    done
    for to in "${gone[@]}"; do rm -f "$root$to"; done
    # Directories that are Ginnel's alone; a staged tree loses what is empty in it.
    rmdir "$root$prefix/lib/ginnel" 2>/dev/null || true
    local file
    for file in "${configurations[@]}"; do
        if cmp -s "packaging/$file" "$root/etc/ginnel/$file"; then
            rm -f "$root/etc/ginnel/$file"
        elif [[ -e $root/etc/ginnel/$file ]]; then
            echo "$root/etc/ginnel/$file was changed, and is kept"
        fi
    done
    rmdir "$root/etc/ginnel" 2>/dev/null || true
}

"${what}_all"
