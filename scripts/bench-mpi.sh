#!/usr/bin/env bash
# NetPIPE's latency and bandwidth between two ranks, by every way that they can take, in interleaved rounds:
#
#   tcp       Open MPI's btl/tcp between two network namespaces
#   carried   the same under ginnel mpirun
#   fabric    libfabric and Ginnel's provider, between the same namespaces
#   ucx       UCX and Ginnel's transport, between the same namespaces
#   unsealed  the same without a job key, for a segment that nobody else has
#   vader     Open MPI's own shared memory, both ranks on one system: the mark
#
#   scripts/bench-mpi.sh [--rounds N] [--repeats N] [--most BYTES] [--output FILE]
#
# Needs root, Debian's openmpi-bin and netpipe-openmpi, and a release build. Prints medians and ratios to vader;
# every sample goes to FILE (default target/bench-mpi.tsv: round, way, bytes, microseconds one way).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=5 repeats=100 most=8388608 output=${CARGO_TARGET_DIR:-target}/bench-mpi.tsv
while [[ $# -gt 0 ]]; do
    case $1 in
        --rounds) rounds=$2; shift 2 ;;
        --most) most=$2; shift 2 ;;
        --repeats) repeats=$2; shift 2 ;;
        --output) output=$2; shift 2 ;;
        *) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
done
ginnel=$PWD/${CARGO_TARGET_DIR:-target}/release/ginnel
for needed in "$ginnel" mpirun.openmpi NPopenmpi ip; do
    command -v "$needed" >/dev/null || { echo "bench-mpi: no $needed here" >&2; exit 1; }
done
[[ $(id -u) -eq 0 ]] || { echo "bench-mpi: network namespaces need root" >&2; exit 1; }

work=$(mktemp -d /dev/shm/ginnel-bench-mpi.XXXXXX)
a=gmpi-$$-a b=gmpi-$$-b
cleanup() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ip netns add "$a"
ip netns add "$b"
ip -n "$a" link add eth0 type veth peer name eth0 netns "$b"
for side in "$a 1" "$b 2"; do
    read -r name number <<<"$side"
    ip -n "$name" addr add "10.78.0.$number/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" link set lo up
done

# A launcher's remote shell: the "host" is a namespace, which is also its own host name.
cat > "$work/agent" <<'AGENT'
#!/bin/sh
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host && exec \"\$@\"" sh sh -c "$*"
AGENT
chmod +x "$work/agent"

export GINNEL_DIR=$work/ginnel OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -m 700 "$GINNEL_DIR"
apart=(--mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.78.0.0/24
       --mca btl_tcp_if_include 10.78.0.0/24 --bind-to none -host "$a:1,$b:1" -np 2)
inside=(ip netns exec "$a" unshare --uts sh -c "hostname $a && exec \"\$@\"" sh)

run() {  # way
    local result=$work/np.out
    local program=(NPopenmpi -p 0 -n "$repeats" -u "$most" -o "$result")
    rm -f "$result"
    case $1 in
        tcp)     "${inside[@]}" mpirun.openmpi "${apart[@]}" --mca pml ob1 --mca btl tcp,self "${program[@]}" ;;
        carried) "${inside[@]}" "$ginnel" mpirun --launcher mpirun.openmpi "${apart[@]}" -x GINNEL_DIR "${program[@]}" ;;
        fabric)  "${inside[@]}" "$ginnel" mpirun --over fabric --launcher mpirun.openmpi "${apart[@]}" "${program[@]}" ;;
        ucx)     "${inside[@]}" "$ginnel" mpirun --over ucx --launcher mpirun.openmpi "${apart[@]}" "${program[@]}" ;;
        unsealed)
                 "${inside[@]}" env GINNEL_JOB_KEY= "$ginnel" mpirun --over ucx --launcher mpirun.openmpi "${apart[@]}" "${program[@]}" ;;
        vader)   mpirun.openmpi --mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism none \
                     --bind-to none -np 2 "${program[@]}" ;;
    esac >"$work/said" 2>&1 </dev/null || { echo "bench-mpi: $1 failed:" >&2; tail -n 20 "$work/said" >&2; return 1; }
    # NetPIPE writes: bytes, Mb/s, seconds one way.
    awk -v round="$round" -v way="$1" '{ printf "%s\t%s\t%s\t%.4f\n", round, way, $1, $3 * 1e6 }' "$result" >> "$output"
}

mkdir -p "$(dirname "$output")"
: > "$output"
ways=(vader fabric ucx unsealed carried tcp)
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds" >&2
    for way in "${ways[@]}"; do run "$way"; done
done

awk -F'\t' '
    { key = $3 SUBSEP $2; samples[key] = samples[key] " " $4; sizes[$3] = 1 }
    function median(text,    n, list, i, j, t) {
        n = split(text, list, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] + 0 > list[j] + 0; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    END {
        printf "%9s %10s %10s %10s %11s %10s %10s | %s\n", "bytes", "vader us", "fabric us", "ucx us", "unsealed us", "carried us", "tcp us", "fabric/vader ucx/vader unsealed/vader tcp/fabric tcp/ucx tcp/carried"
        n = 0; for (size in sizes) order[++n] = size + 0
        for (i = 2; i <= n; i++) for (j = i; j > 1 && order[j - 1] > order[j]; j--) { t = order[j]; order[j] = order[j - 1]; order[j - 1] = t }
        for (i = 1; i <= n; i++) {
            s = order[i]; if (s != 1 && log(s) / log(2) % 1 > 1e-9) continue
            v = median(samples[s SUBSEP "vader"]); f = median(samples[s SUBSEP "fabric"])
            c = median(samples[s SUBSEP "carried"]); p = median(samples[s SUBSEP "tcp"]); u = median(samples[s SUBSEP "ucx"]); o = median(samples[s SUBSEP "unsealed"])
            printf "%9d %10.2f %10.2f %10.2f %11.2f %10.2f %10.2f | %12.2f %9.2f %14.2f %10.1f %7.1f %11.1f\n", s, v, f, u, o, c, p, f / v, u / v, o / v, p / f, p / u, p / c
        }
    }' "$output"
