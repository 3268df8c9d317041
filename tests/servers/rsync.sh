#!/bin/sh
# rsync and its daemon: trees there and back, and changes to a large file, beside each other.
. "${0%/*}/lib.sh"
needs rsync python3
version rsync --version
port=$(port)
cd "$TMPDIR" || exit 1
mkdir tree there
for folder in $(seq 30); do
    mkdir "tree/$folder"
    for file in $(seq 30); do head -c "$((folder * file * 50))" /dev/urandom >"tree/$folder/$file"; done
done
head -c 100000000 /dev/urandom >tree/large
cat >rsyncd.conf <<C
use chroot = no
pid file = $TMPDIR/rsync.pid
log file = $TMPDIR/rsync.log
[there]
path = $TMPDIR/there
read only = no
C

# change FILE: a hundred places of it.
change() {
    python3 -c 'import sys
with open(sys.argv[1], "r+b") as file:
    for place in range(100):
        file.seek(place * 900001)
        file.write(b"changed")' "$1"
}

# there_and_back NAME
there_and_back() {
    over=$(($(date +%s) + seconds))
    at=rsync://$address:$port/there/$1
    while
        rsync -a tree/ "$at/" && diff -r tree "there/$1" || return 1
        rsync -a "$at/" "back.$1/" && diff -r tree "back.$1" || return 1
        change "there/$1/large" && change "back.$1/large" || return 1
        rsync -a -I --no-whole-file tree/ "$at/" && diff -r tree "there/$1" || return 1
        rsync -azc "$at/" "back.$1/" && diff -r tree "back.$1" || return 1
        rm -rf "there/$1" "back.$1"
        [ "$(date +%s)" -lt "$over" ]
    do :; done
}

beside_each_other() {
    there_and_back one & one=$!
    there_and_back two & two=$!
    wait "$one" && wait "$two"
}

start rsync --daemon --no-detach --config=rsyncd.conf --address="$address" --port="$port"
check "listens" listening "$port"
check "trees there and back, again and again" beside_each_other
