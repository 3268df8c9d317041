#!/bin/sh
# PostgreSQL: a process for each connection; pgbench's accounts must add up after connections that stay and connections that come and go.
. "${0%/*}/lib.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
PATH=$bin:$PATH
needs initdb postgres pgbench psql
version postgres --version
port=$(port)
export PGHOST=$address PGPORT="$port" PGUSER=tester PGDATABASE=postgres

adds_up() {
    sums=$(psql -At -c 'select (select sum(delta) from pgbench_history) = (select sum(abalance) from pgbench_accounts)
        and (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)')
    echo "sums agree: $sums"
    [ "$sums" = t ]
}

large() {
    [ "$(psql -At -c "select repeat('0123456789', 5000000)" | tr -d '\n' | sha256sum)" = \
      "$(python3 -c 'import sys; sys.stdout.write("0123456789" * 5000000)' | sha256sum)" ]
}

check initdb initdb -D "$TMPDIR/data" -U tester -A trust --no-sync
start postgres -D "$TMPDIR/data" -k "$TMPDIR" -p "$port" -c listen_addresses=$address -c fsync=off -c max_connections=60
check "listens" listening "$port"
check "tables" pgbench -q -i -s 4
check "20 connections that stay" pgbench -n -c 20 -j 2 -T "$seconds"
check "a connection for each transaction" pgbench -n -C -c 8 -j 2 -T "$((seconds / 2))"
check "the accounts add up" adds_up
check "50 MB in one answer" large
