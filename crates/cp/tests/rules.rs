//! What each option and form of a path means: rsync's rules.

use crate::stage::{Place, names, snapshot, until};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

fn write(path: impl AsRef<std::path::Path>, text: &str) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
}

fn read(path: impl AsRef<std::path::Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

#[test]
fn a_trailing_slash_means_what_lies_in_it() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    write(place.here("src/a"), "a");
    place.copies(&["-r", "src", "s:/one"]);
    assert_eq!(read(place.root("one/src/a")), "a");
    place.copies(&["-r", "src/", "s:/two"]);
    assert_eq!(read(place.root("two/a")), "a");
    place.copies(&["-r", "src/.", "s:/three/"]);
    assert_eq!(read(place.root("three/a")), "a");
    place.copies(&["-r", "s:/one", "x"]);
    assert_eq!(read(place.here("x/one/src/a")), "a");
    place.copies(&["-r", "s:one/", "y"]);
    assert_eq!(read(place.here("y/src/a")), "a");
    place.copies(&["-r", "s:", "all"]);
    assert_eq!(names(&place.here("all")), ["one", "three", "two"]);
    // A directory that is there is gone into.
    place.copies(&["src/a", "s:/two/", "--json"]);
    assert_eq!(names(&place.root("two")), ["a"]);
}

#[test]
fn one_file_becomes_what_the_destination_names() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    write(place.here("a"), "one");
    write(place.here("b"), "two");
    place.copies(&["a", "s:/name"]);
    assert_eq!(read(place.root("name")), "one");
    place.copies(&["b", "s:/name"]);
    assert_eq!(read(place.root("name")), "two");
    place.copies(&["a", "s:/new/"]);
    assert_eq!(read(place.root("new/a")), "one");
    place.copies(&["s:/name", "c"]);
    assert_eq!(read(place.here("c")), "two");
    place.copies(&["s:/name", "s:/new/a", "d"]);
    assert_eq!(names(&place.here("d")), ["a", "name"]);
    for wrong in [["s:/name", "s:/new/a", "c"], ["-r", "s:/new", "c"]] {
        let said = place.cp(&wrong);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(said.err.contains("has to be a directory"), "{said:?}");
    }
    assert_eq!(read(place.here("c")), "two");
    let said = place.cp(&["a", "s:/none/at/all"]);
    assert_eq!(said.code, Some(3), "{said:?}");
}

#[test]
fn words_of_errors_name_the_file_and_the_way_out() {
    let place = Place::new();
    write(place.here("a"), "a");
    let says = |args: &[&str], code: i32, words: &[&str]| {
        let said = place.cp(args);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(words.iter().all(|word| said.err.contains(word)), "{said:?}");
    };
    says(&["a", "s:"], 5, &["no such segment"]);
    let server = place.serve(&[]);
    says(&["a", "s:"], 5, &["reading only", "--writable"]);
    says(&["a", "t:"], 5, &["nobody named t", "there are: s", "ginnel cp serve"]);
    says(&["none", "s:"], 23, &["none: No such file"]);
    says(&["s:none", "."], 23, &["none: No such file"]);
    says(&["a", "b"], 2, &["NAME:PATH"]);
    says(&["s:a", "s:b"], 2, &["both sides"]);
    says(&["a", "s:b", "c"], 2, &["one side"]);
    says(&["a"], 2, &["DESTINATION"]);
    says(&["--delete", "s:a", "."], 2, &["-r"]);
    says(&["--bwlimit", "fast", "s:a", "."], 2, &["KiB"]);
    fs::create_dir(place.root("dir")).expect("made");
    says(&["s:dir", "."], 23, &["dir", "-r"]);
    says(&["-r", "--exclude", "[", "s:dir", "."], 2, &["--exclude"]);
    let said = place.cp(&["serve", "--root", "/none"]);
    assert!(said.code == Some(3) && said.err.contains("/none"), "{said:?}");
    let root = place.path("root").display().to_string();
    let said = place.cp(&["serve", "--root", &root, "--name", "s"]);
    assert!(said.code == Some(5) && said.err.contains("serves already"), "{said:?}");
    let said = place.cp(&["serve", "--root", &root, "--name", "a.b"]);
    assert!(said.code == Some(2) && said.err.contains("letters"), "{said:?}");
    drop(server);
    says(&["a", "s:"], 5, &["nobody named s", "nobody serves"]);
    // The name is free again.
    let _server = place.serve(&["--writable"]);
    place.copies(&["a", "s:"]);
}

#[test]
fn what_is_there_is_not_copied_again() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    write(place.here("t/a"), "same");
    place.copies(&["-a", "t", "s:"]);
    let again =
        |args: &[&str]| place.copies(&[args, &["--json", "t", "s:"]].concat()).count("copied");
    assert_eq!(again(&["-a"]), 0);
    assert_eq!(again(&["-aI"]), 1);
    // The same size and time, and other bytes.
    let time = File::open(place.here("t/a"))
        .expect("there")
        .metadata()
        .expect("open")
        .modified()
        .expect("set");
    write(place.here("t/a"), "SAME");
    File::open(place.here("t/a")).expect("there").set_modified(time).expect("set");
    assert_eq!(again(&["-a"]), 0);
    assert_eq!(again(&["-anc"]), 1);
    assert_eq!(read(place.root("t/a")), "same", "nothing is done with -n");
    assert_eq!(again(&["-ac"]), 1);
    assert_eq!(read(place.root("t/a")), "SAME");
    // Attributes alone.
    fs::set_permissions(place.here("t/a"), fs::Permissions::from_mode(0o640)).expect("set");
    assert_eq!(again(&["-a"]), 0);
    assert_eq!(fs::metadata(place.root("t/a")).expect("there").mode() & 0o777, 0o640);
}

#[test]
fn without_options_modes_and_times_are_the_receivers() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    write(place.here("a"), "a");
    fs::set_permissions(place.here("a"), fs::Permissions::from_mode(0o755)).expect("set");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    File::open(place.here("a")).expect("there").set_modified(old).expect("set");
    write(place.root("kept"), "b");
    fs::set_permissions(place.root("kept"), fs::Permissions::from_mode(0o604)).expect("set");
    place.copies(&["a", "s:/new"]);
    place.copies(&["a", "s:/kept"]);
    let meta = |name: &str| fs::metadata(place.root(name)).expect("there");
    assert!(meta("new").modified().expect("set") > old);
    assert_eq!(meta("kept").mode() & 0o777, 0o604, "one that is replaced keeps its own");
    place.copies(&["-pt", "a", "s:/kept"]);
    assert_eq!((meta("kept").mode() & 0o777, meta("kept").mtime()), (0o755, 1000));
}

#[test]
fn links_are_links_or_left_out() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    write(place.here("t/a"), "a");
    symlink("a", place.here("t/in")).expect("made");
    symlink("/etc/passwd", place.here("t/out")).expect("made");
    let said = place.copies(&["-r", "--json", "t", "s:/plain"]);
    assert_eq!((said.count("skipped"), names(&place.root("plain/t"))), (2, vec!["a".into()]));
    // A server takes none that leads out.
    let said = place.cp(&["-a", "t", "s:/linked"]);
    assert!(said.code == Some(23) && said.err.contains("t/out"), "{said:?}");
    assert_eq!(names(&place.root("linked/t")), ["a", "in"]);
    symlink("/etc/passwd", place.root("linked/t/out")).expect("made");
    place.copies(&["-a", "s:linked/t", "."]);
    let said = place.cp(&["-a", "--safe-links", "s:linked/t", "safe"]);
    assert_eq!(
        (said.code, names(&place.here("safe/t"))),
        (Some(23), vec!["a".into(), "in".into()])
    );
    // A link is replaced, not followed.
    symlink("a", place.root("linked/t/replaced")).expect("made");
    write(place.here("replaced"), "new");
    place.copies(&["replaced", "s:linked/t/"]);
    assert_eq!(
        (read(place.root("linked/t/a")), read(place.root("linked/t/replaced"))),
        ("a".into(), "new".into())
    );
}

#[test]
fn delete_makes_the_destination_alike() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    write(place.here("t/a"), "a");
    write(place.here("t/sub/b"), "b");
    for extra in ["t/old", "t/sub/old", "t/gone/deep/file", "t/kept.log", "beside"] {
        write(place.root(extra), "x");
    }
    let dry = place.copies(&["-an", "--delete", "--exclude", "*.log", "t", "s:", "--json"]);
    assert_eq!(dry.count("deleted"), 3, "{dry:?}");
    assert_eq!(read(place.root("t/gone/deep/file")), "x");
    let said = place.copies(&["-a", "--delete", "--exclude", "*.log", "t", "s:", "--json"]);
    assert_eq!(said.count("deleted"), 3, "{said:?}");
    assert_eq!(names(&place.root("t")), ["a", "kept.log", "sub"]);
    assert_eq!(
        (names(&place.root("t/sub")), read(place.root("beside"))),
        (vec!["b".into()], "x".into())
    );
    place.copies(&["-a", "--delete", "t/", "s:t"]);
    assert_eq!(snapshot(&place.root("t")), snapshot(&place.here("t")));
    // A file where a directory was, and a directory where a file was.
    fs::remove_dir_all(place.here("t/sub")).expect("removed");
    write(place.here("t/sub"), "now a file");
    fs::remove_file(place.here("t/a")).expect("removed");
    write(place.here("t/a/x"), "now a directory");
    let said = place.cp(&["-a", "t/", "s:t"]);
    assert!(said.code == Some(23) && said.err.contains("--delete"), "{said:?}");
    place.copies(&["-a", "--delete", "t/", "s:t"]);
    assert_eq!(snapshot(&place.root("t")), snapshot(&place.here("t")));
    // Back, and an empty directory empties.
    fs::remove_dir_all(place.root("t/a")).expect("removed");
    fs::create_dir(place.root("t/a")).expect("made");
    place.copies(&["-a", "--delete", "s:t", "."]);
    assert_eq!(snapshot(&place.root("t")), snapshot(&place.here("t")));
    let said = place.cp(&["-a", "--delete", "s:t", "s:beside", "."]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    for name in ["t/a", "t/sub/b", "t/sub/into/old"] {
        write(place.root(name), name);
    }
    let root = place.path("root").display().to_string();
    // Both ways; by the parent's name, and what lies in it.
    for (args, left) in [
        ([format!("{root}/t/"), "s:t/sub/into".into()], "sub/into: left out"),
        ([format!("{root}/t"), "s:t/sub/into".into()], "t/sub/into: left out"),
        (["s:t/".into(), format!("{root}/t/sub/into")], "sub/into: left out"),
        ([format!("{root}/t"), "s:t".into()], "t: left out"),
    ] {
        let said = place.cp(&["-r".into(), args[0].clone(), args[1].clone()]);
        assert!(said.code == Some(23) && said.err.contains(left), "{said:?}");
        assert!(!place.root("t/sub/into/sub/into").exists(), "{said:?}");
        assert!(!place.root("t/sub/into/t/sub/into").exists(), "{said:?}");
        assert_eq!(read(place.root("t/sub/into/old")), "t/sub/into/old");
    }
    assert_eq!(names(&place.root("t/sub/into/t/sub")), ["b"]);
    // What lies in it, over itself.
    place.copies(&["-rI".to_owned(), format!("{root}/t/"), "s:t".into()]);
    assert_eq!(read(place.root("t/a")), "t/a");
}

#[test]
fn what_is_excluded_stays_away() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    for file in ["t/a.o", "t/a.c", "t/cache/x", "t/sub/b.o", "t/sub/cache"] {
        write(place.here(file), file);
    }
    place.copies(&["-r", "--exclude", "*.o", "--exclude", "cache/", "t/", "s:t"]);
    assert_eq!(
        (names(&place.root("t")), names(&place.root("t/sub"))),
        (vec!["a.c".into(), "sub".into()], vec!["cache".into()])
    );
    place.copies(&["-r", "--exclude", "/t/sub", "s:t", "back"]);
    assert_eq!(names(&place.here("back/t")), ["a.c"]);
}

#[test]
fn an_interrupted_copy_goes_on_from_where_it_was() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let whole = crate::stage::bytes(7, 8 << 20);
    fs::write(place.here("big"), &whole).expect("written");
    for (way, args) in [("up", ["big", "s:"]), ("down", ["s:big", "back/"])] {
        fs::create_dir_all(place.here("back")).expect("made");
        let directory = if way == "up" { place.path("root") } else { place.here("back") };
        let partial = directory.join(".big.ginnel-partial");
        let mut child = place.start(&[&["--partial", "--bwlimit", "4M"], &args[..]].concat());
        let has_begun = || partial.metadata().is_ok_and(|meta| meta.len() > 1 << 20);
        until("it has begun", has_begun);
        child.kill();
        until("it stands still", || {
            let len = || partial.metadata().expect("kept").len();
            let was = len();
            std::thread::sleep(Duration::from_millis(300));
            was == len()
        });
        let there = partial.metadata().expect("kept").len();
        assert!(!directory.join("big").exists() && there < 8 << 20);
        let said = place.copies(&[&["--partial", "--json"], &args[..]].concat());
        let sent = said.json()["sent"].as_u64().expect("a count");
        assert_eq!(sent, (8 << 20) - there, "only what is missing: {said:?}");
        assert_eq!(
            (fs::read(directory.join("big")).expect("there"), names(&directory)),
            (whole.clone(), vec!["big".into()])
        );
        // What is not the same at its beginning comes as a whole.
        fs::write(&partial, vec![1; 1 << 20]).expect("written");
        let said = place.copies(&[&["--partial", "-I", "--json"], &args[..]].concat());
        assert_eq!(said.count("sent"), 8 << 20);
        assert_eq!(fs::read(directory.join("big")).expect("there"), whole);
    }
}

#[test]
fn in_place_writes_over_and_makes_holes() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let sparse = File::create(place.here("f")).expect("made");
    sparse.write_all_at(b"begin", 0).expect("written");
    sparse.write_all_at(b"end", 3_000_000).expect("written");
    fs::write(place.root("f"), crate::stage::bytes(1, 5_000_000)).expect("written");
    let inode = || fs::metadata(place.root("f")).expect("there").ino();
    let was = inode();
    place.copies(&["--inplace", "f", "s:"]);
    assert_eq!(inode(), was);
    assert!(fs::read(place.root("f")).expect("there") == fs::read(place.here("f")).expect("there"));
    let blocks = fs::metadata(place.root("f")).expect("there").blocks();
    assert!(blocks < 1000, "{blocks} blocks: holes are holes");
    place.copies(&["f", "s:"]);
    assert_ne!(inode(), was, "beside it, without --inplace");
}

#[test]
fn a_rate_is_kept() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::write(place.root("f"), crate::stage::bytes(1, 1 << 20)).expect("written");
    let began = std::time::Instant::now();
    place.copies(&["--bwlimit", "1M", "s:f", "."]);
    assert!(began.elapsed() > Duration::from_millis(600), "{:?}", began.elapsed());
    let began = std::time::Instant::now();
    place.copies(&["--bwlimit", "1024", "f", "s:g"]);
    assert!(began.elapsed() > Duration::from_millis(600), "{:?}", began.elapsed());
}

#[test]
fn owners_and_their_bits_are_a_servers_to_allow() {
    if !crate::stage::is_root() {
        return println!("skipped: takes root");
    }
    let place = Place::new();
    write(place.here("f"), "f");
    std::os::unix::fs::chown(place.here("f"), Some(12345), Some(54321)).expect("root may");
    fs::set_permissions(place.here("f"), fs::Permissions::from_mode(0o6755)).expect("set");
    let is = |path: std::path::PathBuf| {
        let meta = fs::metadata(path).expect("there");
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    };
    let server = place.serve(&["--writable"]);
    place.copies(&["-a", "f", "s:"]);
    assert_eq!(is(place.root("f")), (0, 0, 0o755), "not by itself");
    drop(server);
    let server = place.serve(&["--writable", "--owners"]);
    place.copies(&["-a", "f", "s:"]);
    assert_eq!(is(place.root("f")), (12345, 54321, 0o6755));
    place.copies(&["-a", "s:f", "back"]);
    assert_eq!(is(place.here("back")), (12345, 54321, 0o6755));
    place.copies(&["-rlpt", "s:f", "plain"]);
    assert_eq!(is(place.here("plain")), (0, 0, 0o755));
    drop(server);
}

#[test]
fn many_clients_share_a_small_segment() {
    let place = Place::new();
    let create = place
        .command(crate::stage::program())
        .args(["segment", "create", "default", "--size", "16M"])
        .status();
    assert!(create.expect("runs").success());
    let _server = place.serve(&["--writable"]);
    fs::write(place.here("f"), crate::stage::bytes(1, 6 << 20)).expect("written");
    let clients: Vec<_> =
        (0..8).map(|client| place.start(&["f".to_owned(), format!("s:f{client}")])).collect();
    for (client, running) in clients.into_iter().enumerate() {
        let said = running.ends();
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            fs::read(place.root(&format!("f{client}"))).expect("there")
                == crate::stage::bytes(1, 6 << 20)
        );
    }
}
