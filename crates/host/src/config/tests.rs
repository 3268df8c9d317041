use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("g.toml")).map_err(|error| error.to_string())
}

fn wrong(text: &str) -> String {
    parse(text).expect_err("it is wrong")
}

#[test]
fn nothing_means_one_segment_for_the_own_user_and_root() {
    let config = parse("").expect("defaults");
    let (name, segment) = config.segments.first_key_value().expect("one");
    assert_eq!(
        (name.as_str(), segment.size, segment.machines, segment.vectors),
        ("default", 1 << 30, 8, 4)
    );
    assert!(segment.joiners(3).users.contains(&0) && segment.joiners(0).groups.is_empty());
    assert_eq!(config.status, Some("127.0.0.1:9190".parse().expect("an address")));
}

#[test]
fn everything_can_be_said() {
    let config = parse(
        r#"
            run_dir = "/tmp/x"
            status = "off"
            [segment.web]
            size = "64M"
            slots = 3
            vectors = 2
            memory = "hugepages-2M"
            users = ["root", 1000]
            groups = ["root"]
            [segment.web.slot.3]
            groups = [7]
            [segment.web.host]
            users = [5]
            processes = 0
            trust = ["10.0.0.7", "fd00::/64"]
            [segment.db]
            size = 16777216
        "#,
    )
    .expect("good");
    let web = &config.segments["web"];
    assert_eq!(
        (web.size, web.machines, web.vectors, web.memory, web.processes),
        (64 << 20, 3, 2, Backing::Huge2M, 0)
    );
    assert_eq!(web.trust, ["10.0.0.7", "fd00::/64"]);
    assert_eq!(web.joiners(1), &Joiners { users: vec![0, 1000], groups: vec![0] });
    assert_eq!(web.joiners(3), &Joiners { users: vec![], groups: vec![7] });
    assert_eq!(web.joiners(0), &Joiners { users: vec![5], groups: vec![] });
    assert_eq!(config.segments["db"].size, 16 << 20);
    assert_eq!((config.status, config.socket("web", 3)), (None, "/tmp/x/web/3.sock".into()));
    assert_eq!(config.socket("web", 0), Path::new("/tmp/x/web/host.sock"));
}

#[test]
fn what_is_wrong_is_said_with_file_line_key_and_the_way_out() {
    assert_eq!(
        wrong("[segment.a]\n\nsize = \"100M\"\n"),
        "g.toml:3: segment.a.size: must be a power of two from 16M to 1T, as it is a PCI device's memory: \"128M\" is the next"
    );
    for everybody in ["0.0.0.0/0", "10.0.0.7; allow", "10.0.0.7\\ntrust address 10.0.0.8", ""] {
        let said = wrong(&format!("[segment.a.host]\ntrust = [\"{everybody}\"]"));
        assert!(said.starts_with("g.toml:2: segment.a.host.trust: "), "{said}");
    }
    assert_eq!(
        wrong("run_dir = \"here\""),
        "g.toml:1: run_dir: must be an absolute path, like \"/run/ginnel\""
    );
    assert_eq!(
        wrong("[segment.a]\nusers = [0,\n \"no-such\"]"),
        "g.toml:3: segment.a.users: there is no user \"no-such\" on this host; create it, write its number, or take it out"
    );
    for (text, begins, tells) in [
        ("[segment.a]\nslotz = 3", "g.toml:2: `slotz = 3`: unknown field `slotz`", "`slots`"),
        ("[segment.a]\nslots = \"x\"", "g.toml:2: `slots = \"x\"`: ", "expected u16"),
        ("[segment.a\n", "g.toml:1: ", "docs/ginneld.md"),
        ("[segment.a]\nslots = 0", "g.toml:2: segment.a.slots: ", "1 to 254"),
        ("[segment.a]\nvectors = 257", "g.toml:2: segment.a.vectors: ", "1 to 256"),
        ("[segment.a]\nsize = \"big\"", "g.toml:2: segment.a.size: ", "256M"),
        ("[segment.a]\nsize = -1", "g.toml:2: ", "a size like"),
        ("[segment.a]\nmemory = \"disk\"", "g.toml:2: ", "`memfd`"),
        (
            "[segment.a]\nmemory = \"hugepages-1G\"\nsize = \"16M\"",
            "g.toml:3: segment.a.size: ",
            "larger size",
        ),
        ("\n[segment.\"a b\"]", "g.toml:2: segment.a b: ", "letters, digits"),
        ("[segment.a.slot.9]\nusers = []", "g.toml:1: segment.a.slot.9: ", "1 to 8"),
        ("status = \"0.0.0.0:1\"", "g.toml:1: status: ", "loopback"),
        ("status = \"here\"", "g.toml:1: status: ", "127.0.0.1:9190"),
        ("[segment.a]\nslots = 254\nvectors = 256", "g.toml: segment: ", "fewer slots or vectors"),
    ] {
        let said = wrong(text);
        assert!(
            said.starts_with(begins) && said.contains(tells) && !said.contains('\n'),
            "{text:?} gave {said:?}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_an_error_only_if_it_was_named() {
    let error = Config::load(Some(Path::new("/no/such.toml"))).expect_err("not there").to_string();
    assert!(
        error.starts_with("/no/such.toml: cannot be read: No such file")
            && error.contains("--config"),
        "{error}"
    );
}
