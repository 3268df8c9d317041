#!/usr/bin/env bash
# Installs what was built, or takes it away again: for `make install`, `make uninstall`, and the
# packages, whose files are what this installs (scripts/packages.sh).
#
#   scripts/install.sh install|uninstall
#
# PREFIX   where to (/usr/local)
# LIBDIR   where to put libraries that programs link with (PREFIX/lib)
# DESTDIR  a directory that stands for the root directory, for whoever makes a package (none)
# FROM     the directory of the built files (target/release)
# GINNEL   a command that runs here, for manual pages and completions, where FROM's is for another
#          processor (FROM/ginnel)
#
# packaging/files lists what is built. Nothing is started, no user is made: `make install` says what
# is left to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-}
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
from=${FROM:-${CARGO_TARGET_DIR:-target}/release}
ginnel=${GINNEL:-$from/ginnel}
[[ $what == install || $what == uninstall ]] || { echo "usage: $0 install|uninstall" >&2; exit 2; }
for name in PREFIX DESTDIR LIBDIR; do
    case ${!name:-/} in
        /*) ;;
        *) echo "$name=${!name}: must be an absolute path" >&2; exit 2 ;;
    esac
done
# A list of preloads is divided by both, and a unit's command line by spaces.
[[ $prefix != *[[:space:]:]* ]] || { echo "PREFIX=$prefix: has a space or a colon" >&2; exit 2; }
prefix=${prefix%/}

libdir=${LIBDIR:-$prefix/lib}
share=$prefix/share
zsh=${ZSH_COMPLETIONS:-$share/zsh/site-functions}
# What an administrator changes: kept if it was, and never overwritten.
configurations=(ginneld.toml switch.toml)
units=(ginneld.service ginnel-prover.service ginnel-broker.service ginnel-switch.service ginnel-cache@.service)

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Each line: mode, the file, where to. A link has "link" for the mode, and its target for the file.
built() {
    local crate name folder mode file to
    while read -r crate name folder mode; do
        [[ $crate != \#* && -n $crate ]] || continue
        to=$prefix/$folder
        [[ $folder != LIB* ]] || to=$libdir${folder#LIB}
        case $crate:$name in
            =:*) echo "link $name $to/${name##*/}" ;;
            -:*.in) echo "$mode $work/$name $to/$(basename "$name" .in)" ;;
            -:*) echo "$mode $name $to/${name##*/}" ;;
            *)
                file=$(made_of "$name")
                if [[ $folder == LIB ]]; then
                    echo "$mode $file $to/$name.$version"
                    echo "link $name.$version $to/$name.0"
                    echo "link $name.0 $to/$name"
                else
                    echo "$mode $file $to/$name"
                fi ;;
        esac
    done <packaging/files
}

# The file of that name; libginnel.so is linked where there is only what cargo makes of it.
made_of() {
    if [[ $1 == libginnel.so && ! -e $from/$1 ]]; then
        echo "$work/$1"
    else
        echo "$from/$1"
    fi
}

# What is made of the command's own definitions, of the unit, and of what says where the rest lies.
made() {
    local page template
    for template in $(awk '$1 == "-" && $2 ~ /\.in$/ { print $2 }' packaging/files); do
        mkdir -p "$work/$(dirname "$template")"
        sed "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|" "$template" >"$work/$template"
    done
    mkdir -p "$work/man"
    "$ginnel" generate man --into "$work/man"
    for page in "$work"/man/*; do echo "644 $page $share/man/man${page##*.}/${page##*/}"; done
    "$ginnel" generate completions --shell bash >"$work/bash"
    "$ginnel" generate completions --shell zsh >"$work/zsh"
    "$ginnel" generate completions --shell fish >"$work/fish"
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
    if [[ ! -e $from/libginnel.so && -e $from/libginnel_c.a ]]; then
        scripts/link-capi.sh "$(realpath "$from")/libginnel_c.a" "$work/libginnel.so"
    fi
    { made; built; } >"$work/list"
    while read -r mode file to; do
        [[ $mode == link || -f $file || $file == */\$LIB/* ]] ||
            { echo "$file is not there: build it (make build)" >&2; exit 1; }
    done <"$work/list"
    while read -r mode file to; do
        # It takes more than a compiler to build.
        [[ $mode == link || -f $file ]] || { echo "left out: the library for musl ($file)" >&2; continue; }
        mkdir -p "$(dirname "$root$to")"
        # Under another name first: programs that run go on with the file that they have.
        if [[ $mode == link ]]; then
            ln -sfn "$file" "$root$to.new"
        else
            install -D -m "$mode" "$file" "$root$to.new"
        fi
        mv -fT "$root$to.new" "$root$to"
    done <"$work/list"
    for file in "${configurations[@]}"; do
        [[ -e $root/etc/ginnel/$file ]] || install -D -m 644 "packaging/$file" "$root/etc/ginnel/$file"
    done
    [[ -n $root ]] || after
}

after() {
    echo "Installed below $prefix. For programs that link with libginnel.so:  ldconfig. For ginneld, on a host with virtual machines:"
    echo "    systemd-sysusers && systemctl daemon-reload && systemctl enable --now ginneld"
}

uninstall_all() {
    local mode file to
    local -a gone
    # The list does not hang on what is built: manual pages are known by their names.
    mapfile -t gone < <(built | while read -r mode file to; do echo "$to"; done)
    gone+=("${units[@]/#/$prefix/lib/systemd/system/}" "$prefix"/lib/sysusers.d/ginnel.conf
          "$share"/bash-completion/completions/ginnel "$zsh/_ginnel" "$share"/fish/vendor_completions.d/ginnel.fish)
    for to in "$root$share"/man/man1/ginnel{,-*}.1 "$root$share"/man/man8/{ginneld,ginnel-prover,ginnel-broker,ginnel-switch}.8; do
        gone+=("${to#"$root"}")
    done
    for to in "${gone[@]}"; do
        rm -f "$root$to"
        # Of libraries what an earlier version installed, too.
        [[ $to != *.so.0 ]] || rm -f "$root$to".*
    done
    # Directories that are Ginnel's alone; a staged tree loses what is empty in it.
    rmdir "$root$prefix"/lib/ginnel/{\$LIB,lib64,lib/*,lib,} 2>/dev/null || true
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
