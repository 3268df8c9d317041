#!/bin/sh
# ProFTPD: a connection for each file, made by the client or by the server; curl and lftp, which fetches one file by four of them.
. "${0%/*}/lib.sh"
needs proftpd lftp curl openssl
version proftpd -v
port=$(port)
cd "$TMPDIR" || exit 1
mkdir home tree
head -c 100000000 /dev/urandom >large
for size in $(seq 100); do head -c "${size}000" /dev/urandom >"tree/$size"; done
echo "tester:$(openssl passwd -1 secret):$(id -u):$(id -g):x:$TMPDIR/home:/bin/sh" >users
chmod 600 users
cat >proftpd.conf <<C
ServerName files
ServerType standalone
DefaultAddress $address
SocketBindTight on
Port $port
User $(id -un)
Group $(id -gn)
Umask 022
AuthOrder mod_auth_file.c
AuthUserFile $TMPDIR/users
RequireValidShell off
PidFile $TMPDIR/proftpd.pid
ScoreboardFile $TMPDIR/scores
SystemLog $TMPDIR/proftpd.log
TransferLog none
WtmpLog off
AllowOverwrite on
AllowStoreRestart on
UseReverseDNS off
DelayEngine off
C
site=ftp://tester:secret@$address:$port

# by_curl [OPTIONS]
by_curl() {
    over=$(($(date +%s) + seconds / 2))
    while
        curl -sS "$@" -T large "$site/curl" && curl -sS "$@" "$site/curl" | cmp - large || return 1
        [ "$(date +%s)" -lt "$over" ]
    do :; done
}

# by_lftp SETTINGS
by_lftp() {
    patience="set net:timeout 20; set net:max-retries 2; set net:reconnect-interval-base 1;"
    files="mirror -R -P 3 tree tree; mirror -P 3 tree back; pget -n 4 curl -o part;"
    rm -rf back part
    lftp -e "$patience $1 $files bye" "$site" && diff -r tree back && cmp large part
}

start proftpd -n -q -c "$TMPDIR/proftpd.conf"
check "listens" listening "$port"
check "100 MB there and back, again and again" by_curl
check "the same by connections that the server makes" by_curl -P - --disable-eprt
check "a hundred files, and 100 MB by four connections" by_lftp ""
check "the same by connections that the server makes, lftp" by_lftp "set ftp:passive-mode no;"
