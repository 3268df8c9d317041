#!/usr/bin/env bash
# The documentation as a site, in target/site: `make docs`. MDBOOK names an mdbook to use; without it
# the version below is built from crates.io, once, into target/tools.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=0.5.4
target=${CARGO_TARGET_DIR:-target}
mdbook=${MDBOOK:-$target/tools/bin/mdbook}
if [[ -z ${MDBOOK-} && $("$mdbook" --version 2>/dev/null) != "mdbook v$version" ]]; then
    "${CARGO:-cargo}" install --locked --root "$target/tools" --target-dir "$target/tools/build" --version "=$version" mdbook
    rm -rf "$target/tools/build"
fi

# Pages stand in the site where they stand here, with the files that they link to, so that links hold.
book=$target/book
rm -rf "$book" "$target/site"
mkdir -p "$book/src"
scripts/check-docs.sh --links | sort -u | xargs -d '\n' cp --parents -t "$book/src"
sed -E 's|\]\(|](docs/|; s|\]\(docs/\.\./|](|' docs/SUMMARY.md >"$book/src/SUMMARY.md"
cp docs/book.toml "$book/"
"$mdbook" build "$book" --dest-dir "$PWD/$target/site"
# mdBook makes index.html of each README.md, and does not tell those who link there.
find "$target/site" -name '*.html' -exec sed -i 's|README\.html|index.html|g' {} +
echo "$target/site/index.html"
