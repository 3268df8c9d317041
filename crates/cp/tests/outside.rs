//! Nothing outside of the offered directory is read or written, whatever names and links say, and
//! whoever swaps them meanwhile.

use crate::stage::{Place, names};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn names_that_lead_out_are_refused() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::write(place.path("secret"), "secret").expect("written");
    fs::write(place.here("a"), "a").expect("written");
    fs::create_dir(place.root("dir")).expect("made");
    symlink("..", place.root("up")).expect("made");
    symlink("/", place.root("absolute")).expect("made");
    symlink("../secret", place.root("link")).expect("made");
    symlink("dir", place.root("stays")).expect("made");
    let absolute = format!("s:/absolute{}", place.path("secret").display());
    for path in [
        "s:../secret",
        "s:/dir/../../secret",
        "s:up/secret",
        "s:/up/",
        &absolute,
        "s:/absolute/etc/passwd",
    ] {
        let said = place.cp(&["-r", path, "out/"]);
        assert!(said.code == Some(23) && said.err.contains("leads out"), "{path}: {said:?}");
    }
    // A link that is named is a link.
    let said = place.copies(&["s:link", "out/", "--json"]);
    assert_eq!((said.count("skipped"), said.count("copied")), (1, 0));
    for path in ["s:../secret", "s:up/x", "s:/up/", "s:absolute/tmp/x", "s:/dir/../../x", "s:link/"]
    {
        let said = place.cp(&["a", path]);
        assert!(said.code == Some(3) && said.err.contains("s"), "{path}: {said:?}");
    }
    assert_eq!(names(place.path("").as_path()), ["g", "here", "root", "secret"]);
    assert_eq!(fs::read_to_string(place.path("secret")).expect("there"), "secret");
    // One that stays below is followed where it is named.
    place.copies(&["a", "s:stays/"]);
    assert_eq!(names(&place.root("dir")), ["a"]);
    // A link in a file's place is replaced.
    place.copies(&["a", "s:link"]);
    assert_eq!(fs::read_to_string(place.path("secret")).expect("there"), "secret");
    assert!(fs::symlink_metadata(place.root("link")).expect("there").is_file());
}

#[test]
fn links_below_the_destination_are_not_gone_through() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::create_dir_all(place.here("t/sub")).expect("made");
    fs::write(place.here("t/sub/f"), "f").expect("written");
    fs::create_dir_all(place.path("victim")).expect("made");
    for base in [place.root("t"), place.here("back/t")] {
        fs::create_dir_all(&base).expect("made");
        symlink(place.path("victim"), base.join("sub")).expect("made");
    }
    // A directory takes the link's place, as it is with rsync.
    place.copies(&["-r", "t", "s:"]);
    place.copies(&["-r", "s:t", "back"]);
    assert_eq!(names(&place.path("victim")), Vec::<String>::new());
    assert!(place.root("t/sub").symlink_metadata().expect("there").is_dir());
    // --delete does not either.
    fs::write(place.path("victim/kept"), "kept").expect("written");
    symlink(place.path("victim"), place.root("t/extra")).expect("made");
    place.copies(&["-r", "--delete", "t", "s:"]);
    assert_eq!(
        (names(&place.path("victim")), names(&place.root("t"))),
        (vec!["kept".into()], vec!["sub".into()])
    );
}

/// Swaps a directory for a link that leads out, as fast as it goes, until it is told to stop.
fn swap(place: &Place, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let [dir, aside, link] = ["t/dir", "aside", "t/link"].map(|name| place.root(name));
    symlink(place.path("victim"), &link).expect("made");
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut swaps = 0;
        while !stop.load(Ordering::Relaxed) {
            let swapped = fs::rename(&dir, &aside).and_then(|()| fs::rename(&link, &dir));
            let back = fs::rename(&dir, &link).and_then(|()| fs::rename(&aside, &dir));
            swaps += u64::from(swapped.is_ok() && back.is_ok());
            // Where a copy replaced one of them meanwhile.
            let _ = fs::create_dir(&dir);
            if link.symlink_metadata().is_err() {
                let victim = link.parent().and_then(|t| t.parent()).and_then(|root| root.parent());
                let _ = symlink(victim.expect("above").join("victim"), &link);
            }
        }
        swaps
    })
}

fn races(seconds: f64) {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::create_dir_all(place.root("t/dir")).expect("made");
    fs::create_dir_all(place.here("t/dir")).expect("made");
    fs::create_dir_all(place.path("victim")).expect("made");
    fs::write(place.path("victim/secret"), "secret").expect("written");
    for name in ["secret", "f"] {
        fs::write(place.here("t/dir").join(name), "honest").expect("written");
        fs::write(place.root("t/dir").join(name), "honest").expect("written");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = swap(&place, &stop);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        let _ = fs::remove_dir_all(place.here("got"));
        place.cp(&["-r", "s:t/dir", "got/"]);
        place.cp(&["s:t/dir/secret", "got/"]);
        let got = |path: &str| fs::read_to_string(place.here(path)).unwrap_or_default();
        for path in ["got/dir/secret", "got/secret"] {
            assert!(["", "honest"].contains(&got(path).as_str()), "{path}: read from outside");
        }
        place.cp(&["-rI", "t/", "s:t"]);
        place.cp(&["-r", "--delete", "t/dir/", "s:t/dir"]);
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper.join().expect("no panic");
    assert!(swaps > 10, "{swaps} swaps");
    assert_eq!(names(&place.path("victim")), ["secret"], "nothing was written or deleted outside");
    assert_eq!(fs::read_to_string(place.path("victim/secret")).expect("there"), "secret");
}

#[test]
fn links_that_are_swapped_meanwhile_lead_nowhere() {
    races(2.0);
}

#[test]
#[ignore = "test-all: as above, for a minute"]
fn links_that_are_swapped_for_long_lead_nowhere() {
    races(60.0);
}
