//! The status page and the metrics: what they say of connections, and how the page does in a real
//! browser.

use crate::common::channels::{connect, end, open};
use crate::common::daemon::{Daemon, SMALL};
use crate::common::wait;
use ginnel_ivshmem::client::Client;
use ginnel_region::{PAGE, Party};
use ginnel_tests::browser::Browser;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;

/// A sample of /metrics for segment `t`.
fn metric(daemon: &Daemon, name: &str) -> u64 {
    let text = daemon.get("/metrics").1;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("ginneld_{name}{{segment=\"t\"}} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

/// The daemon looks into the segment once a second at most.
fn wait_metric(daemon: &Daemon, name: &str, value: u64) {
    wait(&format!("{name} {value}"), || (metric(daemon, name) == value).then_some(()));
}

#[test]
fn connections_and_bytes_are_counted_from_what_the_peers_wrote() {
    let daemon = Daemon::alone(SMALL);
    let (one, _two) = (daemon.join(1), daemon.join(2));
    assert_eq!((metric(&daemon, "connections"), metric(&daemon, "carried_bytes_total")), (0, 0));
    let segment = open(&one);
    let first = connect(&segment, [1, 2], [1000, 200]);
    let second = connect(&segment, [2, 0], [30, 4]);
    wait_metric(&daemon, "connections", 2);
    assert_eq!(
        (metric(&daemon, "open_connections_carried_bytes"), metric(&daemon, "carried_bytes_total")),
        (1234, 1234)
    );
    let status = daemon.status();
    assert_eq!(
        status["machines"][0]["hints"],
        json!({"connections": 1, "sent": 1000, "received": 200})
    );
    assert_eq!(
        status["machines"][1]["hints"],
        json!({"connections": 2, "sent": 230, "received": 1004})
    );
    assert_eq!(status["hints"]["host"], json!({"connections": 1, "sent": 4, "received": 30}));

    // A named object, as the SDK enters one.
    let names = segment.names();
    let claim = names.claim(b"frames", Party::new(1, 1), |_| true).expect("free");
    names.publish(claim, 1, 1, 5000, None).expect("claimed");
    wait_metric(&daemon, "objects", 1);
    assert_eq!(metric(&daemon, "objects_size_bytes"), 5000);
    let hints = &daemon.status()["hints"];
    assert_eq!((&hints["objects"], &hints["object_bytes"]), (&json!(1), &json!(5000)));

    end(&segment, first);
    wait_metric(&daemon, "connections", 1);
    assert_eq!(
        (metric(&daemon, "open_connections_carried_bytes"), metric(&daemon, "carried_bytes_total")),
        (34, 1234),
        "a counter keeps them"
    );
    let third = connect(&segment, [1, 0], [500, 0]);
    wait_metric(&daemon, "connections", 2);
    assert_eq!(metric(&daemon, "carried_bytes_total"), 1734, "and those of later ones come on top");
    end(&segment, third);
    // Whatever a peer writes over it, the counter never goes back, and the daemon answers.
    for word in 0..PAGE / 8 {
        segment.word(u64::from(second) * PAGE + word * 8).store(u64::MAX, Relaxed);
    }
    segment.word(128).store(0, Relaxed);
    wait_metric(&daemon, "connections", 0);
    assert_eq!(metric(&daemon, "carried_bytes_total"), 1734);
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(one.memory().expect("memory"), hole, 0, 16 << 20).expect("a hole");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(metric(&daemon, "connections"), 0);
    let text = daemon.get("/metrics").1;
    for line in [
        "# TYPE ginneld_carried_bytes counter",
        "# TYPE ginneld_connections gauge",
        "# TYPE ginneld_open_connections_carried_bytes gauge",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn a_slots_next_machine_has_nothing_of_the_last_ones_counts() {
    let daemon = Daemon::alone(SMALL);
    let (one, two) = (daemon.join(1), daemon.join(2));
    connect(&open(&two), [1, 2], [1000, 200]);
    wait_metric(&daemon, "connections", 1);
    assert_eq!(
        daemon.status()["machines"][0]["hints"],
        json!({"connections": 1, "sent": 1000, "received": 200})
    );
    drop(one);
    wait("slot 1 free", || (daemon.slots() == [2]).then_some(()));
    let _one = daemon.join(1);
    let status = daemon.status();
    assert_eq!(status["machines"][0]["hints"], json!({"connections": 0, "sent": 0, "received": 0}));
    assert_eq!(
        status["machines"][1]["hints"],
        json!({"connections": 1, "sent": 200, "received": 1000}),
        "until it is freed"
    );
}

/// A daemon whose page has something to show, and a browser.
fn lab() -> Option<(Daemon, Vec<Client>, Browser)> {
    let browser = Browser::start()?;
    let daemon = Daemon::alone(&format!("{SMALL}[segment.z-other_one]\nsize = \"64M\"\n"));
    let peers: Vec<Client> = [0, 0, 1, 2].map(|slot| daemon.join(slot)).into();
    drop(Client::connect(&daemon.socket(1)).expect("connected"));
    daemon.wait_log("event=refused", 1);
    let segment = open(&peers[0]);
    for n in 0..5 {
        connect(&segment, [1, 2], [3 << (30 + n), 5 << 20]);
    }
    connect(&segment, [2, 0], [700 << 20, 12345]);
    Some((daemon, peers, browser))
}

/// The text below a tile's name.
fn tile(browser: &mut Browser, name: &str) -> Value {
    browser.ask(&format!(
        "[...document.querySelectorAll('dt')].find((dt) => dt.textContent === '{name}').nextElementSibling.textContent"
    ))
}

#[test]
fn a_browser_keeps_the_page_up_to_date_in_place_and_says_when_it_cannot() {
    let Some((daemon, mut peers, mut browser)) = lab() else { return };
    browser.open(&daemon.url());
    browser.wait("document.getElementById('live').textContent === 'live'");
    assert_eq!(
        (tile(&mut browser, "Machines"), tile(&mut browser, "Connections")),
        (json!("2"), json!("6"))
    );
    assert_eq!(
        (tile(&mut browser, "Carried"), tile(&mut browser, "Refused joins")),
        (json!("93.7 GiB"), json!("1"))
    );
    // A mark on what is there, and a selection in it: both outlast that the numbers change.
    browser.ask("document.querySelector('section').mark = 1; getSelection().selectAllChildren(document.querySelector('h2')); null");
    let segment = open(&peers[0]);
    connect(&segment, [1, 2], [1 << 30, 0]);
    peers.push(daemon.join(3));
    browser.wait("document.querySelectorAll('tbody tr').length === 6");
    assert_eq!(
        (tile(&mut browser, "Machines"), tile(&mut browser, "Connections")),
        (json!("3"), json!("7"))
    );
    assert_eq!(
        browser.ask("document.querySelector('section').mark + String(getSelection())"),
        "1Segment t"
    );
    peers.pop();
    browser.wait("document.querySelectorAll('tbody tr').length === 5");
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
    let url = daemon.url();
    let strangers: Vec<&str> = browser
        .requests()
        .filter(|request| !request.starts_with(&url) && !request.starts_with("data:"))
        .collect();
    assert_eq!(strangers, Vec::<&str>::new(), "nothing comes from elsewhere");
    assert!(browser.requests().filter(|request| **request == url).count() > 2, "it asked again");
    drop(daemon);
    browser.wait("document.getElementById('live').textContent.startsWith('no answer since ')");
    assert_eq!(tile(&mut browser, "Machines"), "2", "what was known stays");
}

/// The contrast of an element's text (WCAG 2.2, 1.4.3): the least of all text on the page.
const CONTRAST: &str = r"(() => {
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = numbers(color).map((c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (numbers(color)[3] !== 0) return color;
    }
    throw new Error('nothing behind it');
  };
  let least = 21;
  for (const node of document.body.querySelectorAll('*')) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(behind(node))];
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()";

/// Pieces of text that stick out of the screen, or of what holds them.
const OUTSIDE: &str = r"(() => {
  const range = document.createRange();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const outside = [];
  while (walk.nextNode()) {
    if (!walk.currentNode.data.trim() || walk.currentNode.parentElement.closest('caption, thead, meter')) continue;
    range.selectNodeContents(walk.currentNode);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const holder = walk.currentNode.parentElement.closest('section, header, main, footer').getBoundingClientRect();
    if (box.left < holder.left - 1 || box.right > holder.right + 1 || box.right > innerWidth) outside.push(walk.currentNode.data);
  }
  return outside;
})()";

#[test]
fn a_browser_shows_the_page_in_the_light_and_in_the_dark_on_desks_and_phones() {
    let Some((daemon, _peers, mut browser)) = lab() else { return };
    browser.open(&daemon.url());
    browser.wait("document.getElementById('live').textContent === 'live'");
    let mut papers = Vec::new();
    for (width, scheme) in
        [(1280, "light"), (1280, "dark"), (700, "light"), (360, "light"), (320, "dark")]
    {
        browser.show(width, scheme);
        let here = format!("{width} wide, {scheme}");
        assert_eq!(browser.ask("innerWidth"), width, "{here}");
        assert_eq!(
            browser.ask("document.documentElement.scrollWidth <= innerWidth"),
            true,
            "{here}: it scrolls sideways"
        );
        assert_eq!(browser.ask(OUTSIDE), json!([]), "{here}");
        let contrast = browser.ask(CONTRAST).as_f64().expect("a number");
        assert!(contrast >= 4.5, "{here}: {contrast}");
        papers.push(browser.ask("getComputedStyle(document.body).backgroundColor"));
        if let Some(directory) = std::env::var_os("GINNEL_SHOTS") {
            let shot = browser
                .call("Page.captureScreenshot", json!({"captureBeyondViewport": true}))["data"]
                .clone();
            let file =
                std::path::Path::new(&directory).join(format!("{width}-{scheme}.png.base64"));
            std::fs::write(file, shot.as_str().expect("base64")).expect("written");
        }
    }
    assert!(
        papers[0] != papers[1] && papers[0] == papers[3] && papers[1] == papers[4],
        "{papers:?}"
    );
    assert_eq!(browser.complaints(), Vec::<&Value>::new());

    // To those who have it read to them, it has its headings, and the narrow table is one too.
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().expect("a list");
    let of = |role: &str| {
        let nodes =
            nodes.iter().filter(|node| node["ignored"] == false && node["role"]["value"] == role);
        nodes
            .map(|node| node["name"]["value"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("heading"), ["ginneld", "Segment t", "Segment z-other_one"]);
    assert_eq!(
        (of("table"), of("meter").len(), of("main").len()),
        (vec!["Attached to t".to_owned()], 2, 1)
    );
    assert_eq!(of("columnheader").len(), 8);
    assert_eq!(of("rowheader").len(), 5);
    assert_eq!(of("status").len(), 1);
}

/// Without its script the page says as much; and a page of another site learns nothing.
#[test]
fn a_browser_without_scripts_shows_the_page_and_a_strangers_page_cannot_read_it() {
    let Some((daemon, _peers, mut browser)) = lab() else { return };
    let url = daemon.url();
    browser.open("data:text/html,<title>x</title>");
    let ask = |path: &str| {
        format!("fetch('{url}{path}').then((answer) => answer.text(), () => 'refused')")
    };
    for path in ["", "status.json", "metrics"] {
        assert_eq!(browser.ask(&ask(path)), "refused", "{path}");
    }
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.call("Page.navigate", json!({"url": url}));
    browser.wait(
        "document.readyState === 'complete' && document.querySelectorAll('section').length === 2",
    );
    assert_eq!(
        (
            tile(&mut browser, "Machines"),
            browser.ask("document.getElementById('live').textContent")
        ),
        (json!("2"), json!("as of loading"))
    );
}

/// Anybody may listen on a port of loopback: that must not keep the daemon from serving segments.
#[test]
fn a_port_that_is_taken_costs_the_page_and_nothing_else() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let daemon = Daemon::kept(&format!("status = \"{address}\"\n{SMALL}"));
    let said = daemon.wait_log("event=no_status_page", 1);
    assert!(said.contains(&address.to_string()) && said.contains("in use"), "{said}");
    let one = daemon.join(1);
    daemon.restart(libc::SIGKILL);
    one.ring(1, 1).expect("rung");
    daemon.wait_log("event=no_status_page", 2);
    drop(taken);
    daemon.wait_log("event=status_page", 1);
    assert_eq!(daemon.slots(), [1]);
}
