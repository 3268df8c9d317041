#!/bin/sh
# gunicorn: workers that share a listening socket, restarted under load.
. "${0%/*}/lib.sh"
needs gunicorn wrk curl
version gunicorn --version
port=$(port)
cat >"$TMPDIR/application.py" <<'P'
def app(environment, start):
    size = int(environment.get('QUERY_STRING') or 10)
    start('200 OK', [('Content-Length', str(size))])
    return [b'x' * size]
P
large() { [ "$(curl -fsS "http://$address:$port/?50000000" | wc -c)" = 50000000 ]; }

cd "$TMPDIR" || exit 1
start gunicorn -w 3 --threads 4 -b "$address:$port" --graceful-timeout 10 application:app
gunicorn=${started%% *}
check "listens" listening "$port"
check "reloaded under load" load_and_signal "http://$address:$port/?20000" 16 "$gunicorn" HUP 8
check "50 MB" large
