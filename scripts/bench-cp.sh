#!/usr/bin/env bash
# `ginnel cp` beside cp, tar through nc, and rsync (local, and by its daemon), on one kernel: one file
# of 1 GiB and 10,000 files of 4 KiB, to the server and back. The ways are taken in turn in each
# round; prints the median of the rounds with the least and the greatest, in milliseconds.
#
#   scripts/bench-cp.sh [ROUNDS] [DIR]     (5, in /dev/shm; after `cargo build --release -p ginnel-cli`)
#
# SIZE (1024) is the large file in MiB, FILES (10000) how many small ones. A machine that does
# something else beside it measures that: compare within one run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-5} size=${SIZE:-1024} files=${FILES:-10000}
ginnel=$PWD/${CARGO_TARGET_DIR:-target}/release/ginnel
[[ -x $ginnel ]] || { echo "$ginnel is missing: cargo build --release -p ginnel-cli" >&2; exit 1; }
work=$(mktemp -d -p "${2:-/dev/shm}")
export GINNEL_DIR=$work/g
unset GINNEL_SEGMENT
mkdir -m 700 "$GINNEL_DIR"
mkdir "$work"/{src,root,out}
started=()
stop() {
    [[ ${#started[@]} -eq 0 ]] || kill "${started[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT

head -c "${size}M" /dev/urandom >"$work/src/big"
for i in $(seq 0 99); do mkdir -p "$work/src/many/d$i"; done
head -c $((files * 4096)) /dev/urandom | (cd "$work/src/many" && split -b 4096 -a 5 -d - f &&
    for file in f*; do mv "$file" "d$((10#${file#f} % 100))/"; done)

"$ginnel" cp serve --root "$work/root" --name bench --writable 2>"$work/log" &
started+=($!)
port=$((20000 + RANDOM % 10000))
if command -v rsync >/dev/null; then
    printf 'use chroot = no\n[x]\npath = %s\nread only = no\nuid = %s\n' "$work/root" "$(id -u)" >"$work/rsyncd.conf"
    rsync --daemon --no-detach --address 127.0.0.1 --port "$port" --config "$work/rsyncd.conf" &
    started+=($!)
fi
sleep 1

by_nc() {  # from-directory name to-directory
    nc -l -N 127.0.0.1 $((port + 1)) </dev/null | tar -C "$3" -xf - &
    local tar=$!
    until (tar -C "$1" -cf - "$2" | nc -N 127.0.0.1 $((port + 1))) 2>/dev/null; do sleep 0.01; done
    wait "$tar"
}

copy() {  # way what: from src to root, or from root to out for the ways back
    local s=$work/src r=$work/root o=$work/out
    case $1 in
        'ginnel, there') "$ginnel" cp -a "$s/$2" bench:/ ;;
        'ginnel, back') "$ginnel" cp -a "bench:/$2" "$o/" ;;
        'cp') cp -r "$s/$2" "$r/" ;;
        'rsync, local') rsync -a "$s/$2" "$r/" ;;
        'rsync daemon, there') rsync -a "$s/$2" "rsync://127.0.0.1:$port/x/" ;;
        'rsync daemon, back') rsync -a "rsync://127.0.0.1:$port/x/$2" "$o/" ;;
        'tar and nc') by_nc "$s" "$2" "$r" ;;
    esac
}

ways=('ginnel, there' 'ginnel, back' cp)
! command -v rsync >/dev/null || ways+=('rsync, local' 'rsync daemon, there' 'rsync daemon, back')
! command -v nc >/dev/null || ways+=('tar and nc')
for round in $(seq "$rounds"); do
    for what in big many; do
        for way in "${ways[@]}"; do
            rm -rf "$work/out/$what"
            case $way in *back) [[ -e $work/root/$what ]] || cp -a "$work/src/$what" "$work/root/" ;; *) rm -rf "$work/root/$what" ;; esac
            from=$(date +%s%N)
            copy "$way" "$what"
            echo "$what|$way|$((($(date +%s%N) - from) / 1000))" >>"$work/times"
            case $way in *back) place=out ;; *) place=root ;; esac
            diff -rq "$work/src/$what" "$work/$place/$what" >/dev/null || { echo "$way: $what differs" >&2; exit 1; }
        done
    done
    echo "round $round of $rounds" >&2
done

echo "$size MiB in one file (big), $files files of 4 KiB (many); ms, median of $rounds (least to greatest)"
sort -t'|' -k1,1 -k2,2 -k3,3n "$work/times" | awk -F'|' '
    function show() { if (n) printf "%-5s %-22s %8.1f  (%.1f to %.1f)\n", what, way, t[int((n + 1) / 2)] / 1000, t[1] / 1000, t[n] / 1000 }
    $1 != what || $2 != way { show(); n = 0; what = $1; way = $2 }
    { t[++n] = $3 }
    END { show() }'
