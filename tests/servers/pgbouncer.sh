#!/bin/sh
# PgBouncer before PostgreSQL: many clients share a few connections; reloaded, paused and reconnected under load; the accounts must add up.
. "${0%/*}/lib.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
PATH=$bin:$PATH
needs initdb postgres pgbench psql pgbouncer
version pgbouncer --version
behind=$(port)
port=$(port)
export PGHOST=$address PGPORT="$port" PGUSER=tester PGDATABASE=postgres
: >"$TMPDIR/users"
cat >"$TMPDIR/pgbouncer.ini" <<C
[databases]
* = host=$address port=$behind user=tester
[pgbouncer]
listen_addr = $address
listen_port = $port
auth_type = any
auth_file = $TMPDIR/users
unix_socket_dir = $TMPDIR
pool_mode = transaction
max_client_conn = 200
default_pool_size = 10
ignore_startup_parameters = extra_float_digits
logfile = $TMPDIR/pgbouncer.log
pidfile = $TMPDIR/pgbouncer.pid
admin_users = tester
C

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

reloaded() {
    (for _ in 1 2 3; do
        sleep 1
        kill -HUP "$pgbouncer"
        psql -h "$TMPDIR" -d pgbouncer -c RELOAD -c PAUSE -c RESUME -c RECONNECT || exit 1
    done) &
    control=$!
    pgbench -n -c 20 -j 2 -T "$((seconds / 2))" && wait "$control"
}

check initdb initdb -D "$TMPDIR/data" -U tester -A trust --no-sync
start postgres -D "$TMPDIR/data" -k "$TMPDIR" -p "$behind" -c listen_addresses=$address -c fsync=off -c max_connections=60
check "PostgreSQL listens" listening "$behind"
start pgbouncer "$TMPDIR/pgbouncer.ini"
pgbouncer=${started%% *}
check "PgBouncer listens" listening "$port"
check "tables" pgbench -q -i -s 4
check "20 connections that stay" pgbench -n -c 20 -j 2 -T "$((seconds / 2))"
check "a connection for each transaction" pgbench -n -C -c 8 -j 2 -T "$((seconds / 2))"
check "reloaded, paused and reconnected under load" reloaded
check "the accounts add up" adds_up
check "50 MB in one answer" large
