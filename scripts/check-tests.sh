#!/usr/bin/env bash
# Every file of tests is named in docs/tests.md, and compiled: a crate's tests are one executable,
# whose main.rs names its files. Says which are not, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=0
complain() {
    echo "$1" >&2
    failed=1
}

for file in tests/tests/*.rs guest/tests/*.rs fuzz/tests/*.rs crates/*/tests/*.rs; do
    folder=${file%/*} name=$(basename "$file" .rs)
    [[ $name != main ]] || continue
    grep -qF "\`$file\`" docs/tests.md || complain "$file is not in docs/tests.md"
    if [[ -f $folder/main.rs && -f $file ]]; then
        grep -qx "mod $name;" "$folder/main.rs" || complain "$file is not in $folder/main.rs: nothing compiles it"
    fi
done

# Nor is one named there that is gone.
while read -r file; do
    [[ -e $file ]] || complain "docs/tests.md names $file, which is gone"
done < <(grep -oE '`(tests|guest|fuzz|crates)/[^`]*`' docs/tests.md | tr -d '`')
exit "$failed"
