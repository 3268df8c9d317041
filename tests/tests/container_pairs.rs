//! redis and nginx, each with its client, in containers: that their bytes are carried within a
//! group and between two, by the broker. Prints how many requests a second that makes beside TCP,
//! which means something on a quiet machine alone.

use crate::container_networks::host_with_broker;
use crate::containers::{add_c_library, redis, remove};
use crate::service;
use ginnel_tests::host::Host;
use ginnel_tests::image::Image;
use ginnel_tests::{permit, skip};
use std::path::Path;

/// nginx with one worker, which answers by itself.
const NGINX: &str = "daemon off; worker_processes 1; pid /dev/shm/nginx.pid; error_log stderr;
events { worker_connections 100; }
http {
    access_log off;
    client_body_temp_path /dev/shm/body; proxy_temp_path /dev/shm/proxy; fastcgi_temp_path /dev/shm/fastcgi;
    uwsgi_temp_path /dev/shm/uwsgi; scgi_temp_path /dev/shm/scgi;
    server { listen 8080; keepalive_requests 1000000000; location / { return 200 'an answer of nginx'; } }
}
";

/// A server's command and its port, and the command of a client that asks `$A` there.
struct Pair {
    image: &'static str,
    server: &'static str,
    port: u16,
    client: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair {
        image: "redis",
        server: "/usr/bin/redis-server --bind 0.0.0.0 --protected-mode no --save '' --dir /dev/shm",
        port: 6379,
        client: "redis-benchmark -h $A -n 20000 -c 4 -t get -q",
    },
    Pair {
        image: "nginx",
        server: "/usr/sbin/nginx -c /nginx.conf",
        port: 8080,
        client: "wrk -t 1 -c 4 -d 3s http://$A:8080/",
    },
];

/// nginx, wrk and a shell.
fn nginx(what: &str) -> Option<Image> {
    let image = Image::bare(what)?;
    for program in ["/usr/sbin/nginx", "/usr/bin/wrk", "/usr/bin/cat", "/bin/sh"] {
        if !Path::new(program).exists() {
            skip(what, &format!("{program} is not installed"));
            return None;
        }
        image.add(Path::new(program));
    }
    add_c_library(&image);
    std::fs::write(image.within(Path::new("/nginx.conf")), NGINX).expect("written");
    // nginx opens a log by the name that it was built with before it reads its configuration.
    std::fs::create_dir_all(image.within(Path::new("/var/log/nginx"))).expect("a directory");
    Some(image)
}

impl Pair {
    /// Runs both, the server's container with `options[0]` and the client's with `options[1]`: the
    /// client's report, and its requests a second.
    fn run(&self, host: &Host, options: [&str; 2]) -> (String, f64) {
        let Self { image, server, port, client } = self;
        host.must(&format!("podman run -d --name s --user 1000 {} {image} {server}", options[0]));
        let address = host.said("podman inspect -f '{{.NetworkSettings.IPAddress}}' s");
        let address = address.trim();
        host.must(&format!(
            "for i in $(seq 100); do (: </dev/tcp/{address}/{port}) 2>/dev/null && exit; sleep 0.2; done; podman logs s; exit 1"
        ));
        let said = host.said(&format!(
            "podman run --rm --user 1000 {} --env A={address} --env GINNEL_REPORT=/dev/shm/report {image} /bin/sh -c '{client}; cat /dev/shm/report || :'",
            options[1]
        ));
        remove(host, "podman", "s");
        let name = client.split(' ').next().expect("a program");
        let report = said.lines().filter(|line| line.starts_with('{') && line.contains(name));
        (report.collect(), rate(&said))
    }
}

/// The requests a second that redis-benchmark or wrk says.
fn rate(said: &str) -> f64 {
    let words: Vec<&str> = said.split_whitespace().collect();
    let number = |word: &str| word.parse::<f64>().ok();
    let of_redis = words.windows(2).rev().find(|pair| pair[1] == "requests").map(|pair| pair[0]);
    let of_wrk = words.windows(2).find(|pair| pair[0] == "Requests/sec:").map(|pair| pair[1]);
    of_wrk.or(of_redis).and_then(number).unwrap_or_else(|| panic!("no rate: {said}"))
}

#[test]
#[ignore = "test-all: boots a host with podman"]
fn redis_and_nginx_are_carried() {
    let what = "redis and nginx in containers";
    let _permit = permit::cpu(2);
    let (Some(redis), Some(nginx)) = (redis(what), nginx(what)) else { return };
    let images = [("redis", &redis), ("nginx", &nginx)];
    let Some(host) = host_with_broker(what, &images) else { return };
    host.must("ginnel container cdi v1000 --user 1000");
    let (one, other) = ("--device ginnel.dev/segment=u1000", "--device ginnel.dev/segment=v1000");
    for pair in PAIRS {
        let (_, plain) = pair.run(&host, ["", ""]);
        for (how, options) in [("one group", [one, one]), ("two groups", [one, other])] {
            let (report, rate) = pair.run(&host, options);
            service::assert_carried(&report, 90);
            println!(
                "{}, {how}: {} % by ring, {rate:.0} requests a second, {:.1} times those of TCP ({plain:.0})",
                pair.image,
                service::share(&report),
                rate / plain
            );
        }
    }
}
