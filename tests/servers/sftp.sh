#!/bin/sh
# OpenSSH: a session is handed from process to process; files go there and back.
. "${0%/*}/lib.sh"
needs sshd ssh-keygen sftp
port=$(port)
user=$(id -un)
head -c 100000000 /dev/urandom >"$TMPDIR/sent"
ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/host"
ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/key"
cat >"$TMPDIR/sshd_config" <<C
ListenAddress $address:$port
HostKey $TMPDIR/host
PidFile $TMPDIR/sshd.pid
AuthorizedKeysFile $TMPDIR/key.pub
StrictModes no
# Without PAM sshd takes an account that has no password for a locked one.
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
ForceCommand internal-sftp
C
files() {
    sftp -q -b - -F none -P "$port" -i "$TMPDIR/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$user@$address"
}

there_and_back() {
    for _ in 1 2 3; do
        printf 'put %s %s\nget %s %s\n' "$TMPDIR/sent" "$TMPDIR/there" "$TMPDIR/there" "$TMPDIR/back" | files || return 1
        cmp "$TMPDIR/sent" "$TMPDIR/back" || return 1
    done
}

start "$(command -v sshd)" -D -e -f "$TMPDIR/sshd_config"
check "listens" listening "$port"
check "100 MB there and back, three times" there_and_back
