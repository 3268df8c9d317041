#!/usr/bin/env bash
# Draws docs/crates.svg, the picture of the crates: boxes from docs/crates.txt, an arrow for each
# dependency in the crates' Cargo.toml that is not reached by others. Needs graphviz.
# With --check it draws nothing, and fails where the picture's boxes and arrows are not Cargo's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
picture=docs/crates.svg

# Each crate of crates.txt, and the crates of this project that it builds on: "shim tcp".
arrows() {
    while IFS='|' read -r name _; do
        sed -n '/^\[dependencies\]/,/^\[/p' "crates/$name/Cargo.toml" |
            sed -nE 's/^ginnel(-([a-z-]+))?[ .=].*/\2/p' | sed "s/^$/sdk/; s/^/$name /"
    done < <(grep -v '^#' docs/crates.txt)
}

# The same without those that go without saying: if a needs b and b needs c, then a -> c is left out.
reduced() {
    awk '{ to[$1, $2] = 1; node[$1]; node[$2] }
        function reach(a, b, c) { for (c in node) if ((a, c) in to && (c == b || reach(c, b))) return 1; return 0 }
        END { for (a in node) for (b in node) if ((a, b) in to) {
            far = 0
            for (m in node) if (m != b && (a, m) in to && reach(m, b)) far = 1
            if (!far) print a " -> " b
        } }' < <(arrows) | sort
}

if [[ ${1-} == --check ]]; then
    drawn=$(sed -nE 's/&#45;/-/g; s/^<title>(.*)-&gt;(.*)<\/title>$/\1 -> \2/p' "$picture" | sort)
    diff <(reduced) - <<<"$drawn" && exit 0
    echo "$picture does not show the crates as they are (<: Cargo, >: the picture): scripts/draw-crates.sh draws it anew" >&2
    exit 1
fi

{
    echo 'digraph crates { rankdir=TB; nodesep=0.25; ranksep=0.45; bgcolor="transparent"'
    echo 'node [shape=box, style="rounded,filled", fillcolor="white", fontname="sans-serif", fontsize=11]'
    echo 'edge [arrowsize=0.6, color="#555555"]'
    colour() { case $1 in door) echo '#dcebff' ;; core) echo '#e4f5dc' ;; alone) echo '#fff1cf' ;; *) echo '#f0f0f0' ;; esac; }
    while IFS='|' read -r name kind what; do
        printf '"%s" [label=<<b>%s</b><br/>%s>, fillcolor="%s"]\n' "$name" "$name" "$what" "$(colour "$kind")"
    done < <(grep -v '^#' docs/crates.txt)
    reduced | sed -E 's/^(.*) -> (.*)$/"\1" -> "\2"/'
    echo '}'
} | dot -Tsvg >"$picture"
echo "$picture"
