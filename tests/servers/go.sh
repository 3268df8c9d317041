#!/bin/sh
# A static program in Go as client of a server in C.
. "${0%/*}/lib.sh"
needs go nginx
version go version
port=$(port)
mkdir "$TMPDIR/www" "$TMPDIR/client"
head -c 3000000 /dev/urandom >"$TMPDIR/www/page"
nginx_conf "$port" 2
cat >"$TMPDIR/client/main.go" <<'G'
package main

import ("bytes"; "fmt"; "io"; "net/http"; "os"; "sync"; "time")

func main() {
	want, err := os.ReadFile(os.Args[2])
	if err != nil { panic(err) }
	seconds, err := time.ParseDuration(os.Args[3] + "s")
	if err != nil { panic(err) }
	end := time.Now().Add(seconds)
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				answer, err := http.Get(os.Args[1])
				if err != nil { panic(err) }
				got, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || !bytes.Equal(got, want) { panic(fmt.Sprint("another page: ", err)) }
			}
		}()
	}
	group.Wait()
	fmt.Println("all pages as they should be")
}
G
printf 'module client\n' >"$TMPDIR/client/go.mod"
builds() { cd "$TMPDIR/client" && env CGO_ENABLED=0 GOCACHE="$TMPDIR/cache" GOFLAGS=-mod=mod GOTOOLCHAIN=local go build -o client . ; }
start nginx -e stderr -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
check "listens" listening "$port"
check "a static program builds" builds
check "8 clients" "$TMPDIR/client/client" "http://$address:$port/page" "$TMPDIR/www/page" "$((seconds / 2))"
