#!/usr/bin/env bash
# No source file has more than 400 lines: one that is longer is two things, of which the second gets
# a file and a name of its own. What a program wrote may be as long as it likes, if its first line
# says so. (Functions: clippy.toml.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=0
while read -r file; do
    lines=$(wc -l <"$file")
    [[ $lines -gt 400 ]] || continue
    head -n 1 "$file" | grep -q 'automatically generated' && continue
    echo "$file has $lines lines" >&2
    failed=1
done < <(git ls-files '*.rs')
exit "$failed"
