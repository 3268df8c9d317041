#!/usr/bin/env bash
# Records what docs/measurements.md and the README show: `ginnel bench --full --apps` on this host's namespaces, and `--full` between two guests, into benchmarks/; then puts the
# figures into both files. As root, on a machine with nothing else to do; an hour. After `make build`.
#
#   scripts/record-bench.sh [namespaces|guests|fill]...      (no argument: all three)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ginnel=${CARGO_TARGET_DIR:-target}/release/ginnel
GINNEL_COMMIT=$(git rev-parse --short HEAD)
export GINNEL_COMMIT
when=$(date -u +%Y-%m-%d)-$GINNEL_COMMIT
[[ $# -gt 0 ]] || set -- namespaces guests fill
for step in "$@"; do
    case $step in
        namespaces)
            "$ginnel" bench --full --apps --name namespaces --out "benchmarks/$when-namespaces" ;;
        guests)
            GINNEL_RECORD=$PWD/benchmarks/$when-guests "${CARGO:-cargo}" test --release -p ginnel-guest bench:: -- --ignored --nocapture ;;
        fill)
            # The newest of each.
            for name in namespaces guests; do
                runs=(benchmarks/*-"$name"/)
                [[ -e ${runs[-1]}run.json ]] || { echo "no recorded run of $name"; continue; }
                files=(docs/measurements.md)
                [[ $name == guests ]] || files+=(README.md)
                "$ginnel" bench report "${runs[-1]%/}" --fill "${files[@]}"
            done ;;
        *) echo "usage: $0 [namespaces|guests|fill]..." >&2; exit 2 ;;
    esac
done
