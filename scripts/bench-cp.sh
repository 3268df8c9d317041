#!/usr/bin/env bash
# `ginnel cp` beside cp, nc, tar through nc, scp and rsync (local, and by its daemon), between two
# network namespaces: one file of 1 GiB and 10,000 files of 4 KiB, to the server and back. The ways
# are taken in turn in each round; prints the median of the rounds with the least and the greatest,
# in milliseconds, and how many times longer a way takes than ginnel's, within rounds.
#
#   scripts/bench-cp.sh [ROUNDS] [DIR]     (5, in /dev/shm; after `cargo build --release -p ginnel-cli`)
#
# SIZE (1024) is the large file in MiB, FILES (10000) how many small ones. Without root everything
# goes over loopback. (9p and virtiofs are between a host and its virtual machines, and not here.) A
# machine that does something else beside it measures that: compare within one run.
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
# The servers' end of the network and the clients', with their addresses.
there=() here=() address=127.0.0.1 spaces=()
stop() {
    [[ ${#started[@]} -eq 0 ]] || kill "${started[@]}" 2>/dev/null || true
    for space in "${spaces[@]}"; do ip netns del "$space"; done
    rm -rf "$work"
}
trap stop EXIT

head -c "${size}M" /dev/urandom >"$work/src/big"
for i in $(seq 0 99); do mkdir -p "$work/src/many/d$i"; done
head -c $((files * 4096)) /dev/urandom | (cd "$work/src/many" && split -b 4096 -a 5 -d - f &&
    for file in f*; do mv "$file" "d$((10#${file#f} % 100))/"; done)

if [[ $(id -u) -eq 0 ]] && ip netns add "ginnel-cp-$$-a" 2>/dev/null; then
    a=ginnel-cp-$$-a b=ginnel-cp-$$-b
    spaces=("$a") && ip netns add "$b" && spaces+=("$b")
    ip link add cp-a netns "$a" type veth peer name cp-b netns "$b"
    ip -n "$a" addr add 10.79.0.1/24 dev cp-a && ip -n "$a" link set cp-a up && ip -n "$a" link set lo up
    ip -n "$b" addr add 10.79.0.2/24 dev cp-b && ip -n "$b" link set cp-b up && ip -n "$b" link set lo up
    there=(ip netns exec "$a") here=(ip netns exec "$b") address=10.79.0.1
fi

"${there[@]}" "$ginnel" cp serve --root "$work/root" --name bench --writable 2>"$work/log" &
started+=($!)
port=$((20000 + RANDOM % 10000))
if command -v rsync >/dev/null; then
    printf 'use chroot = no\n[x]\npath = %s\nread only = no\nuid = %s\n' "$work/root" "$(id -u)" >"$work/rsyncd.conf"
    "${there[@]}" rsync --daemon --no-detach --address "$address" --port "$port" --config "$work/rsyncd.conf" &
    started+=($!)
fi
sshd=$(command -v sshd || true)
if [[ -n $sshd ]] && command -v scp >/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -f "$work/host" && ssh-keygen -q -t ed25519 -N '' -f "$work/key"
    mkdir -p /run/sshd
    printf '%s\n' "ListenAddress $address:$((port + 2))" "HostKey $work/host" "PidFile $work/sshd" 'UsePAM no' \
        "AuthorizedKeysFile $work/key.pub" 'StrictModes no' 'PermitRootLogin yes' \
        'Subsystem sftp internal-sftp' >"$work/sshd_config"
    "${there[@]}" "$sshd" -D -f "$work/sshd_config" 2>>"$work/log" &
    started+=($!)
fi
sleep 1

by_ssh() {  # from to, of which one begins with "server:"
    local target
    target=$(id -un)@$address
    "${here[@]}" scp -q -r -p -P $((port + 2)) -i "$work/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        -o LogLevel=ERROR "${1/#server:/$target:}" "${2/#server:/$target:}"
}

# What the server takes in, or gives away: as many bytes as come over one connection.
by_nc() {  # from-directory name to-directory: a file as it is, a directory by tar
    local take give
    if [[ -d $1/$2 ]]; then take="tar -C $3 -xf -" give="tar -C $1 -cf - $2"; else take="cat >$3/$2" give="cat $1/$2"; fi
    "${there[@]}" sh -c "nc -l -N $address $((port + 1)) </dev/null | $take" &
    local end=$!
    until "${here[@]}" sh -c "$give | nc -N $address $((port + 1))" 2>/dev/null; do sleep 0.01; done
    wait "$end"
}
from_nc() {  # the same from the server
    local take give
    if [[ -d $1/$2 ]]; then take="tar -C $3 -xf -" give="tar -C $1 -cf - $2"; else take="cat >$3/$2" give="cat $1/$2"; fi
    "${there[@]}" sh -c "$give | nc -l -N $address $((port + 1))" &
    local end=$!
    until [[ -n $("${there[@]}" ss -Htln "sport = :$((port + 1))") ]]; do sleep 0.005; done
    "${here[@]}" sh -c "nc -d $address $((port + 1)) | $take"
    wait "$end"
}

copy() {  # way what: from src to root, or from root to out for the ways back
    local s=$work/src r=$work/root o=$work/out
    case $1 in
        'ginnel, there') "${here[@]}" "$ginnel" cp -a "$s/$2" bench:/ ;;
        'ginnel, back') "${here[@]}" "$ginnel" cp -a "bench:/$2" "$o/" ;;
        'cp') cp -r "$s/$2" "$r/" ;;
        'rsync, local') rsync -a "$s/$2" "$r/" ;;
        'rsync, there') "${here[@]}" rsync -a "$s/$2" "rsync://$address:$port/x/" ;;
        'rsync, back') "${here[@]}" rsync -a "rsync://$address:$port/x/$2" "$o/" ;;
        'nc, there') by_nc "$s" "$2" "$r" ;;
        'nc, back') from_nc "$r" "$2" "$o" ;;
        'scp, there') by_ssh "$s/$2" "server:$r/" ;;
        'scp, back') by_ssh "server:$r/$2" "$o/" ;;
    esac
}

# Those there before those back: what these bring has come there first.
ways=('ginnel, there' 'ginnel, back' cp)
! command -v rsync >/dev/null || ways+=('rsync, local' 'rsync, there' 'rsync, back')
! command -v nc >/dev/null || ways+=('nc, there' 'nc, back')
[[ ! -s $work/key ]] || ways+=('scp, there' 'scp, back')
for round in $(seq "$rounds"); do
    for what in big many; do
        for way in "${ways[@]}"; do
            rm -rf "$work/out/$what"
            case $way in *back) [[ -e $work/root/$what ]] || cp -a "$work/src/$what" "$work/root/" ;; *) rm -rf "$work/root/$what" ;; esac
            from=$(date +%s%N)
            copy "$way" "$what"
            echo "$what|$way|$round|$((($(date +%s%N) - from) / 1000))" >>"$work/times"
            case $way in *back) place=out ;; *) place=root ;; esac
            diff -rq "$work/src/$what" "$work/$place/$what" >/dev/null || { echo "$way: $what differs" >&2; exit 1; }
        done
    done
    echo "round $round of $rounds" >&2
done

echo "$size MiB in one file (big), $files files of 4 KiB (many; nc carries a tar); median of $rounds rounds (least to greatest)"
sort -t'|' -k1,1 -k2,2 -k4,4n "$work/times" | awk -F'|' '
    function median(list, n, i, j, x) {
        for (i = 2; i <= n; i++) { x = list[i]; for (j = i - 1; j >= 1 && list[j] > x; j--) list[j + 1] = list[j]; list[j + 1] = x }
        return sprintf("%.2f (%.2f to %.2f)", list[int((n + 1) / 2)], list[1], list[n])
    }
    { took[$1, $2, $3] = $4 / 1000; if ($3 > rounds) rounds = $3; if (!(($1, $2) in seen)) { seen[$1, $2]; order[++n] = $1 "|" $2 } }
    END {
        printf "%-5s %-14s %34s   %s\n", "what", "way", "ms", "times as long as ginnel that way"
        for (k = 1; k <= n; k++) {
            split(order[k], one, "|")
            own = one[2] ~ /back$/ ? "ginnel, back" : "ginnel, there"
            for (r = 1; r <= rounds; r++) { ms[r] = took[one[1], one[2], r]; times[r] = ms[r] / took[one[1], own, r] }
            printf "%-5s %-14s %34s   %s\n", one[1], one[2], median(ms, rounds), median(times, rounds)
        }
    }'
