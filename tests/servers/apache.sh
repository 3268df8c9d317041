#!/bin/sh
# Apache before Apache (mod_proxy), with threads and events, and with a process for each connection; restarted gracefully under load.
. "${0%/*}/lib.sh"
needs apache2 wrk curl setsid
version apache2 -v
modules=/usr/lib/apache2/modules
mkdir "$TMPDIR/www"
echo small >"$TMPDIR/www/small"
head -c 100000000 /dev/urandom >"$TMPDIR/www/large"

# conf NAME PORT MPM
conf() {
    mkdir "$TMPDIR/$1"
    cat >"$TMPDIR/$1.conf" <<C
ServerRoot $TMPDIR/$1
ServerName localhost
Listen $address:$2
PidFile $TMPDIR/$1/pid
DefaultRuntimeDir $TMPDIR/$1
Mutex default:$TMPDIR/$1
ErrorLog $TMPDIR/$1/errors
LoadModule mpm_module $modules/mod_mpm_$3.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule proxy_module $modules/mod_proxy.so
LoadModule proxy_http_module $modules/mod_proxy_http.so
LoadModule dav_module $modules/mod_dav.so
LoadModule dav_fs_module $modules/mod_dav_fs.so
DavLockDB $TMPDIR/$1/locks
MaxKeepAliveRequests 0
KeepAliveTimeout 15
MaxRequestWorkers 100
EnableSendfile On
DocumentRoot $TMPDIR/www
<Directory $TMPDIR/www>
Require all granted
Dav On
</Directory>
C
    sed -i "s/LoadModule mpm_module/LoadModule mpm_$3_module/" "$TMPDIR/$1.conf"
}

there() {
    curl -fsS -T "$TMPDIR/www/large" "http://$address:$1/there.$1" && cmp "$TMPDIR/www/large" "$TMPDIR/www/there.$1"
}

back() {
    for _ in 1 2 3; do
        curl -fsS "http://$address:$1/large" | cmp - "$TMPDIR/www/large" || return 1
    done
}

for mpm in event prefork; do
    port=$(port)
    behind=$(port)
    conf "back.$mpm" "$behind" "$mpm"
    conf "front.$mpm" "$port" "$mpm"
    echo "ProxyPass / http://$address:$behind/" >>"$TMPDIR/front.$mpm.conf"
    # At its end it signals its whole group.
    start setsid apache2 -f "$TMPDIR/back.$mpm.conf" -DFOREGROUND
    start setsid apache2 -f "$TMPDIR/front.$mpm.conf" -DFOREGROUND
    apache=${started%% *}
    check "$mpm: both listen" listening "$behind"
    check "$mpm: the proxy listens" listening "$port"
    check "$mpm: 100 MB there" there "$behind"
    check "$mpm: 100 MB there, by the proxy" there "$port"
    check "$mpm: 100 MB back, three times" back "$behind"
    check "$mpm: 100 MB back by the proxy, three times" back "$port"
    seconds=$(((${LOAD_SECONDS:-120} + 1) / 2))
    check "$mpm: the proxy restarted under load" load_and_signal "http://$address:$port/small" 32 "$apache" USR1 2.5
done
