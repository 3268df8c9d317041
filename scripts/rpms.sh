#!/usr/bin/env bash
# Makes rpm packages of the portable build (glibc 2.17 and later), in target/rpms, as
# packaging/rpm/ginnel.spec lists them. docs/install.md says how they are used.
#
#   scripts/rpms.sh
#
# BUILT    a directory with the built files, for whoever has them already (none: scripts/portable.sh)
# INTO     where the packages go (target/rpms)
# RELEASE  rpm's part of the version (1)
# MACHINE  the processor that they are for (this one's): scripts/portable.sh crosses to it
# GINNEL   a ginnel that runs here, where MACHINE is another (target/portable/ginnel)
#
# Needs rpmbuild (Debian: rpm), and binutils for the processor.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
machine=${MACHINE:-$(uname -m)}
into=$(realpath -m "${INTO:-$target/rpms}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
strip=strip
if [[ $machine != $(uname -m) ]]; then
    strip=$machine-linux-gnu-strip
    export GINNEL=${GINNEL:-$target/portable/ginnel}
fi

for tool in rpmbuild "$strip"; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: run  scripts/install-deps.sh packages" >&2; exit 1; }
done
if [[ -z ${BUILT:-} ]]; then
    scripts/portable.sh
    BUILT=$target/portable
    [[ $machine == $(uname -m) ]] || BUILT=$target/portable-$machine
fi

work=$into/.ginnel-work
rm -rf "$work"
mkdir -p "$work/stage" "$work/BUILD"
PREFIX=/usr LIBDIR=/usr/lib64 DESTDIR=$work/stage FROM=$BUILT scripts/install.sh install
# The command's own form of them is a build for this machine alone, maybe.
find "$work/stage" -type f -print0 | while IFS= read -r -d '' file; do
    [[ $(head -c 4 "$file") != $'\x7fELF' ]] || "$strip" --strip-unneeded "$file"
done
cp -r README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE docs "$work/BUILD"

# The same sources give the same packages: the date is that of the last commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
if ! rpmbuild -bb --target "$machine-linux" --define "_topdir $work" --define "_rpmdir $work/RPMS" --define "stage $work/stage" \
    --define "ginnel_version $version" --define "ginnel_release ${RELEASE:-1}" --define "_prefix /usr" \
    --define "use_source_date_epoch_as_buildtime 1" --define "_buildhost localhost" --define "clamp_mtime_to_source_date_epoch 1" \
    packaging/rpm/ginnel.spec >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    echo "rpmbuild failed; all that it said is in $work/log" >&2
    exit 1
fi
# Earlier ones of the same names go. What else lies there is others', as is the directory.
for package in "$work"/RPMS/*/*.rpm; do
    # NAME-VERSION-RELEASE.MACHINE.rpm
    name=${package##*/}
    rm -f "$into/${name%-*-*}"-[0-9]*-*."$machine".rpm
    mv "$package" "$into"
done
rm -rf "$work"
ls "$into"/*."$machine".rpm
