//! `ginnel ls` and `ginnel rm` on a real segment that this process uses.

use crate::common::Place;
use serde_json::Value;

#[test]
fn objects_are_listed_and_removed() {
    let place = Place::new();
    let said = place.run(&["ls", "--segment", "none"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("there is no such segment"), "{said:?}");
    assert!(!place.path("none").exists(), "looking makes no segment");

    assert_eq!(place.run(&["segment", "create", "some", "--size", "16M"]).code, Some(0));
    assert!(place.run(&["ls", "--segment", "some"]).out.contains("No object in"));
    let path = place.path("some");
    // This process's list of processes is another, as a program's of another container would be.
    let segment = ginnel::Segment::open(&path).expect("there");
    let memory = ginnel::Memory::create(&segment, "frames", 1 << 20).expect("free");
    ginnel::Mutex::create(&segment, "lock").expect("free");
    let json =
        |args: &[&str]| -> Value { serde_json::from_str(&place.run(args).out).expect("JSON") };
    let listed = json(&["ls", "--segment", "some", "--json"]);
    let [frames, lock] = [&listed["objects"][0], &listed["objects"][1]];
    assert_eq!((&frames["name"], &frames["kind"]), (&"frames".into(), &"memory".into()));
    assert_eq!((&frames["size"], &frames["owner"]), (&(1 << 20).into(), &Value::Null));
    assert_eq!(frames["users"][0]["pid"], std::process::id());
    assert_eq!((&lock["kind"], &lock["users"]), (&"mutex".into(), &Value::Array(vec![])));
    let shown = place.run(&["ls", "--segment", "some"]).out;
    assert!(shown.contains("frames") && shown.contains("1.0M"), "{shown}");

    let top = place.run(&["top", "--once", "--interval", "0.1"]).out;
    assert!(top.contains("; 2 objects of 1.0 MiB, the largest memory frames\n"), "{top}");

    ginnel::Barrier::create(&segment, "z barrier", 2).expect("free");
    ginnel::Event::create(&segment, "z event", ginnel::Reset::Auto).expect("free");
    ginnel::RwLock::create(&segment, "z rwlock").expect("free");
    let semaphore = ginnel::Semaphore::create(&segment, "z semaphore", 0, 1).expect("free");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| semaphore.acquire().map(ginnel::Permit::use_up));
        let waiting =
            || json(&["ls", "--segment", "some", "--json"])["objects"][5]["waiting"].clone();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while waiting() != 1 && std::time::Instant::now() < until {}
        semaphore.add(1).expect("room");
        assert!(waits.join().expect("one").is_ok());
        assert_eq!(waiting(), 0);
    });
    drop(semaphore);
    let kinds = ["barrier", "event", "rwlock", "semaphore"];
    let listed = json(&["ls", "--segment", "some", "--json"]);
    let listed = listed["objects"].as_array().expect("a list")[2..]
        .iter()
        .map(|object| object["kind"].clone());
    assert!(listed.eq(kinds), "{shown}");
    let names = kinds.map(|kind| format!("z {kind}"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(place.run(&[&["rm", "--segment", "some"], &names[..]].concat()).code, Some(0));

    let said = place.run(&["rm", "frames", "nothing", "lock", "--segment", "some"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("2 of 3 removed") && said.err.contains("nothing"), "{said:?}");
    let left = json(&["ls", "--segment", "some", "--json"]);
    assert_eq!(left["objects"][0]["removed"], true, "this process uses it still: {left}");
    assert_eq!(left["objects"][1], Value::Null);
    drop(memory);
    let left = json(&["ls", "--segment", "some", "--json"]);
    assert_eq!(left["objects"], Value::Array(vec![]));
    assert_eq!(place.run(&["segment", "remove", "some"]).code, Some(1), "this process is in it");
    assert_eq!(place.run(&["segment", "remove", "some", "--force"]).code, Some(0));
}
