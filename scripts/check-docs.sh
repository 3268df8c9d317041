#!/usr/bin/env bash
# The Markdown of the project: every relative link leads to a file that is there, and every anchor to a
# heading; every page of docs/ is in docs/SUMMARY.md, the contents of the site (make docs); and no line
# has more than 100 characters, but those of tables, of code, and of a link that cannot be broken; and
# the picture of the crates shows them as they are. Says what is not so, and fails. With --links it
# prints the pages and all files that they link to.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8

failed=0
complain() {
    echo "$1" >&2
    failed=1
}

# A file's lines without blocks of code.
prose() {
    sed -E '/^ *```/,/^ *```/d' "$1"
}

# The anchors of a file's headings, as GitHub and mdBook name them; one that comes twice gets a number.
anchors() {
    prose "$1" | sed -nE 's/^#{1,6} +//p' | sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g' | tr '[:upper:] ' '[:lower:]-' |
        sed -E 's/[^[:alnum:]_-]//g' | awk '{ print seen[$0]++ ? $0 "-" seen[$0] - 1 : $0 }'
}

mapfile -t pages < <(git ls-files --cached --others --exclude-standard '*.md')
declare -A known
for page in "${pages[@]}"; do
    known[$page]=$(anchors "$page")
done

for page in "${pages[@]}"; do
    [[ ${1-} != --links ]] || echo "$page"
    while read -r link; do
        target=${link%%#*} anchor=""
        [[ $link != *"#"* ]] || anchor=${link#*#}
        file=$page
        if [[ -n $target ]]; then
            file=$(realpath -ms --relative-to=. "${page%"${page##*/}"}./$target")
            [[ ${1-} != --links || ! -f $file ]] || echo "$file"
            [[ -e $file ]] || { complain "$page: no $file, to which ($link) leads"; continue; }
        fi
        [[ -z $anchor || -z ${known[$file]+is} ]] || grep -qxF -- "$anchor" <<<"${known[$file]}" ||
            complain "$page: no heading in $file has the anchor of ($link)"
    done < <(prose "$page" | tr '\n' ' ' | sed -E 's/`[^`]*`//g' | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(|\)$//g' |
        grep -vE '^[a-z]+:' | sort -u)

    mapfile -t long < <(prose "$page" | grep -E '^.{101}' | grep -vE '^ *\||^ *[^ ]*!?\[[^]]*\]\([^)]*\)$|^ *[^ ]+$' || true)
    [[ ${#long[@]} -eq 0 ]] || complain "$page: ${#long[@]} lines have more than 100 characters, first: ${long[0]:0:50} …"
done

for page in docs/*.md; do
    name=${page#docs/}
    [[ $name == SUMMARY.md ]] || grep -qF "($name)" docs/SUMMARY.md || complain "$page is not in docs/SUMMARY.md"
done
scripts/draw-crates.sh --check || failed=1
exit "$failed"
