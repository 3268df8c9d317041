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
