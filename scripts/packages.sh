#!/usr/bin/env bash
# Makes Debian packages of the portable build (glibc 2.17 and later), and a plain apt repository of
# them, in target/packages, as packaging/debian/control lists them. docs/install.md says
# how they are used.
#
#   scripts/packages.sh
#
# BUILT     a directory with the built files, for whoever has them already (none: scripts/portable.sh)
# INTO      where the packages go (target/packages; for another processor, target/packages-MACHINE)
# REVISION  Debian's part of the version (1)
# MACHINE   the processor that they are for (this one's): scripts/portable.sh crosses to aarch64
# GINNEL    a ginnel that runs here, where MACHINE is another (target/portable/ginnel)
#
# Debian's own tools do the packing (package debhelper); lintian looks at the result where it is
# installed, and what it finds is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
machine=${MACHINE:-$(uname -m)}
other= tools=(dh dpkg-buildpackage dh_dkms)
if [[ $machine != $(uname -m) ]]; then
    other=-$machine
    tools+=("$machine-linux-gnu-strip" "/usr/$machine-linux-gnu/lib/libgcc_s.so.1")
    export GINNEL=${GINNEL:-$target/portable/ginnel}
fi
into=$(realpath -m "${INTO:-$target/packages$other}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
full=$version-${REVISION:-1}

grep -qx "PACKAGE_VERSION=\"$version\"" driver/dkms.conf ||
    { echo "driver/dkms.conf has another version than Cargo.toml ($version)" >&2; exit 1; }
for tool in "${tools[@]}"; do
    [[ -e $tool ]] || command -v "$tool" >/dev/null ||
        { echo "$tool is missing: run  scripts/install-deps.sh packages" >&2; exit 1; }
done
if [[ -z ${BUILT:-} ]]; then
    scripts/portable.sh
    BUILT=$target/portable$other
fi
architecture=$(dpkg-architecture -f -t"$machine-linux-gnu" -qDEB_HOST_ARCH)

# A source tree of its own: debhelper writes into the one that it packs.
work=$into/.ginnel-work
tree=$work/ginnel-$version
rm -rf "$work"
mkdir -p "$tree"
PREFIX=/usr LIBDIR=/usr/lib/$machine-linux-gnu DESTDIR=$tree/stage FROM=$BUILT \
    ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions scripts/install.sh install
cp -r packaging/debian "$tree/debian"
cp -r driver docs README.md CHANGELOG.md crates/cache-capi/python/ginnel_cache.py "$tree"
cp -r crates/capi/python/ginnel "$tree/ginnel"
rm -rf "$tree/ginnel/__pycache__"
cp packaging/ginneld.service "$tree/debian/ginneld.service"
cp packaging/ginnel-prover.service "$tree/debian/ginneld.ginnel-prover.service"
cp packaging/ginnel-broker.service "$tree/debian/ginneld.ginnel-broker.service"
cp packaging/ginnel-switch.service "$tree/debian/ginnel-switch.service"
cp packaging/ginnel-cache@.service "$tree/debian/ginnel-cache@.service"
cp packaging/ginnel.sysusers "$tree/debian/ginneld.sysusers"
cp packaging/ginnel.sysusers "$tree/debian/ginnel-switch.sysusers"
cp driver/dkms.conf "$tree/debian/ginnel-dkms.dkms"
sed "s/@VERSION@/$version/" packaging/debian/ginnel-dkms.install.in >"$tree/debian/ginnel-dkms.install"
rm "$tree/debian/ginnel-dkms.install.in"

# The same sources give the same packages: the date is that of the last commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
cat >"$tree/debian/changelog" <<CHANGELOG
ginnel ($full) unstable; urgency=medium

  * Packaged by upstream; changelog.gz has what changed.

 -- Ginnel maintainers <maintainers@ginnel.dev>  $(LC_ALL=C date -R -u -d "@$SOURCE_DATE_EPOCH")
CHANGELOG

# -d: what it depends on to build is this script's affair. A log that is read only where it fails.
if ! (cd "$tree" && dpkg-buildpackage -b -a "$architecture" -us -uc -d) >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    echo "dpkg-buildpackage failed; all that it said is in $work/log" >&2
    exit 1
fi
# What was staged is in one of the packages. (Debhelper looks at what it staged itself.)
(cd "$tree/stage" && find . \! -type d | grep -v sysusers | sed 's|\.gz$||' | sort) >"$work/staged"
for package in "$work"/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -t; done |
    sed 's|\.gz$||; s|^\./lib/systemd/|./usr/lib/systemd/|' | sort -u >"$work/packed"
left=$(comm -23 "$work/staged" "$work/packed")
[[ -z $left ]] || { echo "in no package:" $left >&2; exit 1; }
if command -v lintian >/dev/null; then
    # Nothing is uploaded to Debian, so no bug there asks for it.
    lintian --fail-on error,warning --allow-root --suppress-tags initial-upload-closes-no-bugs "$work"/*.changes
else
    echo "lintian is not installed: the packages are not looked at" >&2
fi
# Earlier ones of the same names go. What else lies there is others', as is the directory.
for package in "$work"/*.deb; do
    name=${package##*/}
    rm -f "$into/${name%%_*}"_*.deb
    mv "$package" "$into"
done
rm -rf "$work"

# For apt:  deb [trusted=yes] file:DIRECTORY ./
(cd "$into" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null && gzip -9nkf Packages)
ls "$into"/*.deb
