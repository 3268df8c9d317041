#!/bin/sh
# PHP's FastCGI processes behind nginx and behind Apache, over connections that are kept.
. "${0%/*}/lib.sh"
PATH=$PATH:/usr/sbin
fpm=$(ls /usr/sbin/php-fpm* 2>/dev/null | tail -n 1)
needs "${fpm:-php-fpm}" nginx apache2 wrk curl setsid
version "$fpm" -v
cgi=$(port)
nginx=$(port)
apache=$(port)
modules=/usr/lib/apache2/modules
mkdir "$TMPDIR/www"
cat >"$TMPDIR/www/page.php" <<'P'
<?php
if ($_SERVER['REQUEST_METHOD'] == 'POST') {
    echo hash('sha256', file_get_contents('php://input'));
} else {
    echo str_repeat('x', (int)$_GET['bytes']);
}
P
cat >"$TMPDIR/fpm.conf" <<C
[global]
error_log = $TMPDIR/fpm.log
daemonize = no
[www]
listen = $address:$cgi
pm = dynamic
pm.max_children = 16
pm.start_servers = 4
pm.min_spare_servers = 2
pm.max_spare_servers = 6
php_admin_value[memory_limit] = 512M
php_admin_value[post_max_size] = 100M
C
nginx_conf "$nginx" 2
sed -i "s|^    server {.*|client_max_body_size 100m; upstream cgi { server $address:$cgi; keepalive 8; } \
server { listen $address:$nginx; location / { fastcgi_pass cgi; fastcgi_keep_conn on; include /etc/nginx/fastcgi_params; \
fastcgi_param SCRIPT_FILENAME $TMPDIR/www\$fastcgi_script_name; } }|" "$TMPDIR/nginx.conf"
cat >"$TMPDIR/apache.conf" <<C
ServerRoot $TMPDIR
ServerName localhost
Listen $address:$apache
PidFile $TMPDIR/apache.pid
DefaultRuntimeDir $TMPDIR
Mutex default:$TMPDIR
ErrorLog $TMPDIR/apache.errors
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule proxy_module $modules/mod_proxy.so
LoadModule proxy_fcgi_module $modules/mod_proxy_fcgi.so
MaxKeepAliveRequests 0
DocumentRoot $TMPDIR/www
<Directory $TMPDIR/www>
Require all granted
</Directory>
<FilesMatch "\.php$">
SetHandler "proxy:fcgi://$address:$cgi"
</FilesMatch>
<Proxy "fcgi://$address:$cgi" enablereuse=on max=8>
</Proxy>
C
head -c 30000000 /dev/urandom >"$TMPDIR/body"

there() {
    wanted=$(sha256sum <"$TMPDIR/body" | cut -d ' ' -f 1)
    got=$(curl -fsS -H 'Content-Type: application/octet-stream' --data-binary "@$TMPDIR/body" "http://$address:$1/page.php")
    echo "$got, wanted $wanted"
    [ "$got" = "$wanted" ]
}

back() { [ "$(curl -fsS "http://$address:$1/page.php?bytes=50000000" | wc -c)" = 50000000 ]; }

load() {
    wrk -t 2 -c 8 -d "$((seconds / 2))" --timeout 20s "http://$address:$1/page.php?bytes=20000" >"$TMPDIR/wrk" 2>&1
    wrk_was_well "$TMPDIR/wrk"
}

start "$fpm" -F -n -y "$TMPDIR/fpm.conf"
start nginx -e stderr -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
start setsid apache2 -f "$TMPDIR/apache.conf" -DFOREGROUND
check "FastCGI listens" listening "$cgi"
for port in "$nginx" "$apache"; do
    [ "$port" = "$nginx" ] && front=nginx || front=Apache
    check "$front listens" listening "$port"
    check "$front: 30 MB there" there "$port"
    check "$front: 50 MB back" back "$port"
    check "$front: pages under load" load "$port"
done
