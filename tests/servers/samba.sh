#!/bin/sh
# Samba: a process for each client; files there and back, one client after another and beside each other.
. "${0%/*}/lib.sh"
needs smbd smbclient setsid
version smbd --version
port=$(port)
mkdir "$TMPDIR/share" "$TMPDIR/state"
chmod 777 "$TMPDIR/share"
cat >"$TMPDIR/smb.conf" <<C
[global]
    interfaces = lo
    bind interfaces only = yes
    private dir = $TMPDIR/state
    lock directory = $TMPDIR/state
    state directory = $TMPDIR/state
    cache directory = $TMPDIR/state
    pid directory = $TMPDIR/state
    ncalrpc dir = $TMPDIR/state/rpc
    smb ports = $port
    map to guest = bad user
    guest account = $(id -un)
    log file = $TMPDIR/smb.log
    disable spoolss = yes
    load printers = no
[share]
    path = $TMPDIR/share
    guest ok = yes
    read only = no
C
head -c 200000000 /dev/urandom >"$TMPDIR/large"
client() { smbclient "//$address/share" -N -p "$port" -s "$TMPDIR/smb.conf" "$@"; }

# there_and_back NUMBER
there_and_back() {
    client -c "put $TMPDIR/large large.$1; get large.$1 $TMPDIR/back.$1" && cmp "$TMPDIR/large" "$TMPDIR/back.$1"
}

small() {
    for i in $(seq 200); do
        printf 'put %s small.%s\nget small.%s %s\n' "$TMPDIR/smb.conf" "$i" "$i" "$TMPDIR/small.$i"
    done | client >/dev/null
    for i in $(seq 200); do cmp "$TMPDIR/smb.conf" "$TMPDIR/small.$i" || return 1; done
}

beside_each_other() {
    over=$(($(date +%s) + seconds))
    while
        there_and_back 1 & one=$!
        there_and_back 2 & two=$!
        wait "$one" && wait "$two" || return 1
        [ "$(date +%s)" -lt "$over" ]
    do :; done
}

start setsid smbd -F --no-process-group -s "$TMPDIR/smb.conf" --debug-stdout
check "listens" listening "$port"
check "200 MB there and back" there_and_back 0
check "200 small files there and back" small
check "200 MB there and back, two beside each other, again and again" beside_each_other
