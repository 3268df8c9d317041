#!/bin/sh
# OpenSSH: a session is handed from process to process; files go there and back, in sessions one after another and beside each other.
. "${0%/*}/lib.sh"
needs sshd ssh-keygen sftp
version ssh -V
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

# there_and_back NUMBER: session after session for the whole time, with files of its own.
there_and_back() {
    over=$(($(date +%s) + seconds))
    while
        printf 'put %s %s\nget %s %s\n' "$TMPDIR/sent" "$TMPDIR/there.$1" "$TMPDIR/there.$1" "$TMPDIR/back.$1" | files || return 1
        cmp "$TMPDIR/sent" "$TMPDIR/back.$1" || return 1
        echo "session $1: there and back"
        [ "$(date +%s)" -lt "$over" ]
    do :; done
}

beside_each_other() {
    for one in 1 2 3; do
        there_and_back "$one" &
        sessions="${sessions:-} $!"
    done
    for session in $sessions; do wait "$session" || return 1; done
}

start "$(command -v sshd)" -D -e -f "$TMPDIR/sshd_config"
check "listens" listening "$port"
check "100 MB there and back, again and again" beside_each_other
