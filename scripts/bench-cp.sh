#!/usr/bin/env bash
# `ginnel cp` beside cp, nc, tar through nc, scp and rsync (local, and by its daemon), between two
# network namespaces: single files of several sizes and 10,000 files of 4 KiB, to the server and
# back. The ways are taken in turn in each round. Prints the median of the rounds with the least and
# the greatest, and how many times as long as `ginnel cp` a way takes, within rounds.
#
#   scripts/bench-cp.sh [ROUNDS] [DIR]     (5, in /dev/shm)
#
# After `cargo build --release -p ginnel-cli -p ginnel-bench`. SIZES are the single files' in KiB
# (4 64 1024 16384 262144 1048576), FILES (10000) is how many small ones there are. RECORD=FOLDER
# keeps all samples there, with a chart. Without root everything goes over loopback. 9p and virtiofs
# are between a host and its virtual machines: `ginnel-bench-copies guests` has those. A machine
# that does something else beside it measures that: compare within one run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-5} files=${FILES:-10000}
read -ra sizes <<<"${SIZES:-4 64 1024 16384 262144 1048576}"
release=$PWD/${CARGO_TARGET_DIR:-target}/release
ginnel=$release/ginnel
for program in "$ginnel" "$release/ginnel-bench-copies"; do
    [[ -x $program ]] || { echo "$program is missing: cargo build --release -p ginnel-cli -p ginnel-bench" >&2; exit 1; }
done
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

# What is copied is named by its files' bytes and their number.
whats=()
for size in "${sizes[@]}"; do
    head -c "${size}K" /dev/urandom >"$work/src/$((size * 1024))x1"
    whats+=("$((size * 1024))x1")
done
many=4096x$files
[[ $files -eq 0 ]] || whats+=("$many")
for i in $(seq 0 99); do mkdir -p "$work/src/$many/d$i"; done
head -c $((files * 4096)) /dev/urandom | (cd "$work/src/$many" && split -b 4096 -a 5 -d - f &&
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

copy() {  # way route what: from src to root, or from root to out for the way back
    local s=$work/src r=$work/root o=$work/out
    case $1,$2 in
        'ginnel cp,there') "${here[@]}" "$ginnel" cp -a "$s/$3" bench:/ ;;
        'ginnel cp,back') "${here[@]}" "$ginnel" cp -a "bench:/$3" "$o/" ;;
        'cp,there') cp -r "$s/$3" "$r/" ;;
        'cp,back') cp -r "$r/$3" "$o/" ;;
        'rsync without a server,there') rsync -a "$s/$3" "$r/" ;;
        'rsync without a server,back') rsync -a "$r/$3" "$o/" ;;
        'rsync,there') "${here[@]}" rsync -a "$s/$3" "rsync://$address:$port/x/" ;;
        'rsync,back') "${here[@]}" rsync -a "rsync://$address:$port/x/$3" "$o/" ;;
        'nc,there') by_nc "$s" "$3" "$r" ;;
        'nc,back') from_nc "$r" "$3" "$o" ;;
        'scp,there') by_ssh "$s/$3" "server:$r/" ;;
        'scp,back') by_ssh "server:$r/$3" "$o/" ;;
    esac
}

ways=('ginnel cp' cp)
! command -v rsync >/dev/null || ways+=('rsync without a server' rsync)
! command -v nc >/dev/null || ways+=(nc)
[[ ! -s $work/key ]] || ways+=(scp)
for round in $(seq "$rounds"); do
    for what in "${whats[@]}"; do
        for route in there back; do
            if [[ $route == there ]]; then place=root; else place=out; fi
            for way in "${ways[@]}"; do
                rm -rf "${work:?}/$place/$what"
                from=$(date +%s%N)
                copy "$way" "$route" "$what"
                echo "$what|$way|$route|$round|$((($(date +%s%N) - from) / 1000))" >>"$work/times"
                diff -rq "$work/src/$what" "$work/$place/$what" >/dev/null ||
                    { echo "$what, $way, $route: differs" >&2; exit 1; }
            done
            # What came there is what goes back; what came back makes room.
            [[ $route == there ]] || rm -rf "${work:?}/root/$what" "$work/out/$what"
        done
    done
    echo "round $round of $rounds" >&2
done
"$release/ginnel-bench-copies" record "$work/times" "${RECORD:-$work/record}"
