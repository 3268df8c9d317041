#!/bin/sh
# MariaDB: a thread for each connection; a threaded load, and a table that must hold what was written.
. "${0%/*}/lib.sh"
needs mariadb-install-db mariadbd mariadb mariadb-slap
version mariadbd --version
port=$(port)
sql() { mariadb --no-defaults -h $address -P "$port" -u root -N -B "$@"; }

# One load after another, each in tables of its own: what is read grows with the square of what was written.
slap() {
    over=$(($(date +%s) + seconds))
    while [ "$(date +%s)" -lt "$over" ]; do
        mariadb-slap --no-defaults -h $address -P "$port" -u root --concurrency=16 --iterations=1 --auto-generate-sql \
            --auto-generate-sql-load-type=mixed --auto-generate-sql-write-number=200 --number-of-queries=6000 || return 1
    done
}

# Eight clients count in one table, each in a connection of its own.
counts() {
    sql -e 'create database t; create table t.n (who int, n int)' || return 1
    for who in 1 2 3 4 5 6 7 8; do
        seq 2000 | sed "s/.*/insert into t.n values ($who, &);/" | sql &
        clients="${clients:-} $!"
    done
    for client in $clients; do wait "$client" || return 1; done
    sums=$(sql -e 'select count(*), sum(n) from t.n')
    echo "count and sum: $sums"
    [ "$sums" = "$(printf '16000\t16008000')" ]
}

check "installs" mariadb-install-db --no-defaults --datadir="$TMPDIR/data" --auth-root-authentication-method=normal --skip-test-db
start mariadbd --no-defaults --datadir="$TMPDIR/data" --socket="$TMPDIR/socket" --port="$port" --bind-address=$address \
    --innodb-flush-log-at-trx-commit=0 --pid-file="$TMPDIR/pid"
check "listens" listening "$port"
check "16 threads of load" slap
check "eight clients count" counts
