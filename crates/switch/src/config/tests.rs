use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "t.toml".as_ref()).map_err(|error| error.to_string())
}

#[test]
fn everything_that_can_be_said() {
    let text = r#"
        run_dir = "/run/x"
        metrics = "[::1]:1"
        poll_us = 0
        busy = true
        mode = "0600"
        group = "7"
        memory = "2T"
        [port.a]
        socket = "/tmp/a"
        key = 4294967295
        queues = 4
        mac = ["52:54:00:00:00:01", "52:54:00:00:00:02"]
        address = "10.0.0.0/8"
        macs = 3
        rate = "10M"
        broadcasts = 5
        memory = "512M"
        [port.b]
        [port.c]
        tap = "tap0"
        [vsock.a]
        cid = 3
        [vsock.b]
        cid = 4294967294
        key = 7
        socket = "/tmp/v"
        host = "off"
        memory = "1G"
    "#;
    let config = parse(text).expect("good");
    assert_eq!(config.control(), Path::new("/run/x/control.sock"));
    assert_eq!((config.poll, config.busy), (Duration::ZERO, true));
    let [a, b, c] = config.ports.as_slice() else { panic!("three") };
    assert_eq!((a.key, a.pairs, a.macs), (u32::MAX, 4, 3));
    assert_eq!((a.rate, a.broadcasts), (Some(10_000_000), Some(5)));
    assert_eq!((config.memory, a.memory, b.memory), (Some(2 << 40), Some(512 << 20), None));
    assert_eq!((config.share(50 << 30), config.share(1 << 46)), (10 << 30, 1 << 40));
    assert_eq!((a.mode, a.group), (0o600, Some(7)));
    assert_eq!((a.filter.macs.len(), a.filter.addresses.len()), (2, 1));
    let [one, two] = config.vsock.as_slice() else { panic!("two") };
    assert_eq!((one.cid, one.key, one.mode, one.group), (3, 0, 0o600, Some(7)));
    assert_eq!(one.socket, Path::new("/run/x/a.vsock"));
    assert_eq!(one.host.as_deref(), Some(Path::new("/run/x/a.host")));
    assert_eq!((two.cid, two.key, two.memory), (u32::MAX - 1, 7, Some(1 << 30)));
    assert_eq!((two.socket.as_path(), &two.host), (Path::new("/tmp/v"), &None));
    assert_eq!(b.socket.as_deref(), Some(Path::new("/run/x/b.sock")));
    assert_eq!((b.rate, b.broadcasts, b.pairs), (None, None, 1));
    assert_eq!((c.socket.as_deref(), c.tap.as_deref()), (None, Some("tap0")));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let port = |line: &str| parse(&format!("[port.a]\n{line}\n")).expect_err(line);
    for (line, place, words) in [
        ("rate = \"1\"", "t.toml:2: port.a.rate", "64K to 1000G"),
        ("rate = \"99999999999999999999G\"", "t.toml:2: port.a.rate", "64K to 1000G"),
        ("memory = \"16\"", "t.toml:2: port.a.memory", "\"16G\""),
        ("memory = \"0G\"", "t.toml:2: port.a.memory", "\"16G\""),
        ("memory = \"99999999999T\"", "t.toml:2: port.a.memory", "\"16G\""),
        ("queues = 17", "t.toml:2: port.a.queues", "must be 1 to 16"),
        ("queues = 0", "t.toml:2: port.a.queues", "must be 1 to 16"),
        ("mac = \"ff:ff:ff:ff:ff:ff\"", "t.toml:2: port.a.mac", "no guest's address"),
        ("address = [\"10.0.0.1\", \"x\"]", "t.toml:2: port.a.address", "\"x\" is no address"),
        ("address = []", "t.toml:2: port.a.address", "allow nothing"),
        ("mac = []", "t.toml:2: port.a.mac", "allow nothing"),
        ("address = \"10.0.0.5/24\"", "t.toml:2: port.a.address", "or \"10.0.0.0/24\""),
        ("socket = \"a\"", "t.toml:2: port.a.socket", "absolute"),
        ("tap = \"a/b\"", "t.toml:2: port.a.tap", "interface's name"),
        ("socket = \"/a\"\ntap = \"b\"", "t.toml:3: port.a.tap", "not both"),
        ("keys = 1", "t.toml:2", "docs/switch.md"),
        ("[port.b]\nsocket = \"/run/ginnel-switch/a.sock\"", "t.toml:2: port.b", "the same socket"),
    ] {
        let said = port(line);
        assert!(said.starts_with(place) && said.contains(words), "{line}: {said}");
    }
    let twice = "[port.a]\nmac = \"52:54:00:00:00:01\"\n[port.b]\nmac = \"52:54:00:00:00:01\"\n";
    assert!(parse(twice).expect_err("twice").contains("port a of the same segment"));
    assert!(parse(&twice.replace("[port.b]", "[port.b]\nkey = 1")).is_ok());
    for (text, words) in [
        ("[vsock.a]\ncid = 2\n", "vsock.a.cid: must be 3"),
        ("[vsock.a]\n", "missing field"),
        ("[vsock.a]\ncid = 3\n[vsock.b]\ncid = 3\n", "the same cid"),
        ("[vsock.a]\ncid = 3\nsocket = \"/run/ginnel-switch/a.host\"", "the same socket"),
        ("[port.a]\nsocket = \"/s\"\n[vsock.a]\ncid = 3\nsocket = \"/s\"", "the same socket"),
        ("", "1 to 1024 ports"),
        ("metrics = \"0.0.0.0:1\"\n[port.a]", "loopback"),
        ("run_dir = \"x\"\n[port.a]", "absolute"),
        ("mode = \"8\"\n[port.a]", "octal"),
        ("group = \"no such group\"\n[port.a]", "there is no group"),
        ("[port.\"a/b\"]", "letters, digits"),
        ("[port.\"a\\nb\"]", "port.a\\nb: a port's name"),
    ] {
        let said = parse(text).expect_err(text);
        assert!(said.contains(words), "{text}: {said}");
    }
}

#[test]
fn sockets_on_the_command_line() {
    let one = VsockConfig::parse("vm1:3:/run/vm1.vsock:7").expect("good");
    assert_eq!((one.name.as_str(), one.cid, one.key), ("vm1", 3, 7));
    assert_eq!(one.host.as_deref(), Some(Path::new("/run/vm1.vsock.host")));
    for wrong in ["vm1:/x", "vm1:2:/x", "vm1:4294967295:/x", "vm1:3:", "vm1:3:/x:-1", "a b:3:/x"] {
        assert!(VsockConfig::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn ports_on_the_command_line() {
    let port = PortConfig::parse("vm1:/run/vm1.sock:7").expect("good");
    assert_eq!((port.name.as_str(), port.key), ("vm1", 7));
    assert_eq!(PortConfig::parse("vm1:/run/vm1.sock").expect("good").key, 0);
    for wrong in ["vm1", "vm1:", "vm1:/x:-1", "vm1:/x:1:2", "a b:/x", ":/x", "vm1:/x:4294967296"] {
        assert!(PortConfig::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn other_hosts() {
    let text = "[port.a]\nkey = 7\n[port.b]\n[port.c]\nkey = 7\n[fabric]\nlisten = \"10.0.0.1\"\n\
                keys = [7, 9]\nmacs = 5\nprovider = \"verbs\"\n[fabric.hosts]\na = \"10.0.0.1\"\n\
                b = \"10.0.0.2:7\"\nc = \"10.0.0.3\"\n";
    let config = parse(text).expect("good");
    let fabric = config.fabric.expect("a fabric");
    assert_eq!(fabric.listen, "10.0.0.1:9192".parse().expect("an address"));
    let hosts: Vec<_> = fabric.hosts.iter().map(|host| host.address.to_string()).collect();
    assert_eq!(hosts, ["10.0.0.2:7", "10.0.0.3:9192"], "not itself");
    assert_eq!((fabric.provider, fabric.macs, &fabric.secret), (Provider::Verbs, 5, &None));
    assert_eq!(fabric.keys_of(&config.ports), [7]);
    let wrong = |fabric: &str, words: &str| {
        let said = parse(&format!("[port.a]\n[fabric]\n{fabric}\n")).expect_err(fabric);
        assert!(said.contains(words), "{fabric}: {said}");
    };
    let host = "[fabric.hosts]\nb = \"10.0.0.2\"";
    for (line, words) in [
        ("listen = \"0.0.0.0\"", "t.toml:3: fabric.listen"),
        ("listen = \"host1\"", "no host's address"),
        ("listen = \"10.0.0.1\"\nprovider = \"udp\"", "t.toml:4: fabric.provider: must be \"tcp\""),
        ("listen = \"10.0.0.1\"\nsecret = \"/none\"", "fabric.secret: /none: cannot be read"),
        ("listen = \"10.0.0.1\"\nmacs = 0", "fabric.macs: must be 1 to"),
        ("listen = \"10.0.0.2\"", "1 to 64 other hosts"),
        ("listen = \"[fd00::1]:5\"", "IPv4 or IPv6"),
        ("listen = \"10.0.0.1\"\nkey = 1", "docs/switch.md"),
    ] {
        wrong(&format!("{line}\n{host}"), words);
    }
    wrong("listen = \"10.0.0.1\"", "missing field `hosts`");
    let twice = "listen = \"10.0.0.1\"\n[fabric.hosts]\nb = \"10.0.0.2\"\nc = \"10.0.0.2\"";
    wrong(twice, "the name or the address of c");
    wrong("listen = \"10.0.0.1\"\n[fabric.hosts]\n\"a b\" = \"10.0.0.2\"", "letters, digits");
    assert!(HostConfig::parse("b=10.0.0.2").is_ok() && HostConfig::parse("b=[::1]:5").is_ok());
    // A name: of its addresses the one of the kind of `listen`.
    let text = "[port.a]\n[fabric]\nlisten = \"127.77.0.1\"\n[fabric.hosts]\nb = \"localhost:7\"\n";
    let named = parse(text).expect("good").fabric.expect("a fabric");
    assert_eq!(named.hosts, [HostConfig::at("b", "127.0.0.1:7".parse().expect("an address"))]);
    // Longer than a name can be, so that nobody is asked.
    let unknown = format!("b = \"{}\"", "x".repeat(64));
    wrong(
        &format!("listen = \"10.0.0.1\"\n[fabric.hosts]\n{unknown}"),
        "t.toml:5: fabric.hosts.b: \"xxx",
    );
    for bad in ["b=a b", "b=host:0", "b=host:x", "b=1.2.3", "b=-", "b=h/x"] {
        assert!(HostConfig::parse(bad).is_err(), "{bad}");
    }
    for bad in ["b", "=10.0.0.2", "b=", "b=10.0.0.2:0", "b=224.0.0.1", "b=::"] {
        assert!(HostConfig::parse(bad).is_err(), "{bad}");
    }
}
