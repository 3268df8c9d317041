#!/bin/sh
# Network block devices: nbdkit, qemu-nbd and nbd-server, copied from and to by nbdcopy and qemu-img, which keep many requests under
# way on several connections; each copy is compared.
. "${0%/*}/lib.sh"
needs nbdkit nbdcopy qemu-img qemu-nbd nbd-server
version echo "$(nbdkit --version), $(nbdcopy --version), $(qemu-img --version | head -n 1)"
mb=$((seconds * 4))
[ "$mb" -lt 300 ] || mb=300
head -c "${mb}M" /dev/urandom >"$TMPDIR/disk"
of_nbdkit=$(port)
in_memory=$(port)
of_qemu=$(port)
of_server=$(port)
cat >"$TMPDIR/server.conf" <<C
[generic]
port = $of_server
listenaddr = $address
[disk]
exportname = $TMPDIR/disk
C

# copied NAME COMMAND…: the command makes the file, which is as the disk is.
copied() {
    copy=$1
    shift
    "$@" && cmp "$TMPDIR/disk" "$TMPDIR/$copy" && rm "$TMPDIR/$copy"
}

written() {
    qemu-img convert -U -n -f raw -O raw "$TMPDIR/disk" "nbd://$address:$in_memory" &&
        qemu-img compare -U -f raw -F raw "$TMPDIR/disk" "nbd://$address:$in_memory"
}

start nbdkit -f -i "$address" -p "$of_nbdkit" file "$TMPDIR/disk"
start nbdkit -f -i "$address" -p "$in_memory" memory "${mb}M"
start qemu-nbd -t -e 8 -r -b "$address" -p "$of_qemu" -f raw "$TMPDIR/disk"
nbd-server -C "$TMPDIR/server.conf" -p "$TMPDIR/server.pid"
for port in "$of_nbdkit" "$in_memory" "$of_qemu" "$of_server"; do check "listens" listening "$port"; done
check "nbdcopy from nbdkit" copied one nbdcopy "nbd://$address:$of_nbdkit" "$TMPDIR/one"
check "nbdcopy from one to another" nbdcopy "nbd://$address:$of_nbdkit" "nbd://$address:$in_memory"
check "nbdcopy of what came there" copied two nbdcopy "nbd://$address:$in_memory" "$TMPDIR/two"
check "one request at a time" copied three nbdcopy --synchronous "nbd://$address:$of_nbdkit" "$TMPDIR/three"
check "qemu-img from nbdkit" copied four qemu-img convert -f raw -O raw "nbd://$address:$of_nbdkit" "$TMPDIR/four"
check "qemu-img from qemu-nbd" copied five qemu-img convert -f raw -O raw "nbd://$address:$of_qemu" "$TMPDIR/five"
check "nbdcopy from qemu-nbd" copied six nbdcopy "nbd://$address:$of_qemu" "$TMPDIR/six"
check "qemu-img to nbdkit" written
check "nbdcopy from nbd-server" copied seven nbdcopy "nbd://$address:$of_server/disk" "$TMPDIR/seven"
check "qemu-img from nbd-server" copied eight qemu-img convert -f raw -O raw "nbd://$address:$of_server/disk" "$TMPDIR/eight"
kill "$(cat "$TMPDIR/server.pid")"
