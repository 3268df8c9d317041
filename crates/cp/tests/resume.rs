//! What a copy goes on from is what was compared, whoever has its name meanwhile: no file is ever
//! made of two.

use crate::stage::{Place, Said, bytes, is_root, names, snapshot, until};
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

/// A file of `len` bytes that begins like all others, and goes on as its seed says.
fn alike(seed: u64, len: usize) -> Vec<u8> {
    let mut whole = bytes(seed, len);
    whole[..BEGIN].copy_from_slice(&bytes(0, BEGIN));
    whole
}

const BEGIN: usize = 1 << 20;

fn is_one_of(path: &Path, all: &[&[u8]], said: &Said) {
    let content = fs::read(path).expect("there");
    let zeros = content.iter().take_while(|&&byte| byte == 0).count();
    assert!(
        all.contains(&&content[..]),
        "{} bytes, of which {zeros} zeros: {said:?}",
        content.len()
    );
}

#[test]
fn an_unfinished_file_of_another_user_is_not_gone_on_with() {
    if !is_root() {
        return println!("skipped: takes root");
    }
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let whole = bytes(0, 3 << 20);
    fs::write(place.here("big"), &whole).expect("written");
    fs::write(place.root("big"), "old").expect("written");
    let partial = place.root(".big.ginnel-partial");
    fs::write(&partial, &whole[..BEGIN]).expect("written");
    std::os::unix::fs::chown(&partial, Some(12345), None).expect("root may");
    let said = place.cp(&["--partial", "big", "s:"]);
    is_one_of(&place.root("big"), &[&whole, b"old"], &said);
    assert!(said.code == Some(23) && said.err.contains("move it away"), "{said:?}");
    fs::remove_file(&partial).expect("it is there still");
    place.copies(&["--partial", "big", "s:"]);
    is_one_of(&place.root("big"), &[&whole], &said);
}

#[test]
fn two_files_of_one_name_do_not_become_one() {
    for how in [&["--partial"][..], &["--partial", "--inplace"]] {
        let place = Place::new();
        let _server = place.serve(&["--writable"]);
        let (one, mut two) = (alike(1, 2 << 20), alike(2, 3 << 20));
        for directory in ["x", "y"] {
            fs::create_dir(place.here(directory)).expect("made");
        }
        fs::create_dir(place.root("d")).expect("made");
        if how.len() == 1 {
            fs::write(place.root("d/.f.ginnel-partial"), &one[..BEGIN]).expect("written");
        } else {
            // What the second goes on from the first has written over.
            two = bytes(2, 3 << 20);
            fs::write(place.root("d/f"), &two[..BEGIN]).expect("written");
        }
        fs::write(place.here("x/f"), &one).expect("written");
        fs::write(place.here("y/f"), &two).expect("written");
        let said = place.cp(&[how, &["x/f", "y/f", "s:d/"]].concat());
        is_one_of(&place.root("d/f"), &[&one, &two], &said);
        assert!(said.code == Some(23) && said.err.contains("meanwhile"), "{said:?}");
        place.copies(&[how, &["y/f", "s:d/"]].concat());
        is_one_of(&place.root("d/f"), &[&two], &said);
        assert_eq!(names(&place.root("d")), ["f"]);
    }
}

/// A copy that stands still between the comparison and the rest, while others change what it
/// compared.
#[test]
fn what_was_compared_is_what_is_gone_on_with() {
    type Change = fn(&Path, &[u8]);
    let changes: [Change; 3] = [
        |partial, _| fs::remove_file(partial).expect("there"),
        |partial, whole| {
            fs::remove_file(partial).expect("there");
            fs::write(partial, vec![1; whole.len() / 2]).expect("written");
        },
        // It was finished by another.
        |partial, whole| {
            fs::rename(partial, partial.with_file_name("f")).expect("there");
            fs::write(partial.with_file_name("f"), whole).expect("written");
        },
    ];
    for change in changes {
        let place = Place::new();
        let _server = place.serve(&["--writable"]);
        let (first, whole) = (bytes(1, 2 << 20), bytes(2, 2 << 20));
        fs::write(place.here("a"), &first).expect("written");
        fs::write(place.here("f"), &whole).expect("written");
        let partial = place.root(".f.ginnel-partial");
        fs::write(&partial, &whole[..BEGIN]).expect("written");
        // Both are listed in one batch, and the first takes its time.
        let client = place.start(&["--partial", "--bwlimit", "2M", "a", "f", "s:"]);
        until("it has begun", || place.root(".a.ginnel-partial").exists());
        change(&partial, &whole);
        let said = client.ends();
        if let Ok(content) = fs::read(place.root("f")) {
            assert!(content == whole, "a mixture: {said:?}");
        }
        assert!(said.code == Some(23) && said.err.contains("f: writing it"), "{said:?}");
        assert!(fs::read(place.root("a")).expect("there") == first);
        let _ = fs::remove_file(&partial);
        place.copies(&["--partial", "f", "s:"]);
        assert!(fs::read(place.root("f")).expect("there") == whole);
    }
}

#[test]
fn a_tree_with_unfinished_files_is_not_mistaken() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::create_dir(place.here("t")).expect("made");
    fs::write(place.here("t/f"), alike(1, 2 << 20)).expect("written");
    fs::write(place.here("t/.f.ginnel-partial"), alike(2, BEGIN + 5)).expect("written");
    let said = place.copies(&["-a", "--partial", "--json", "t", "s:"]);
    assert_eq!((said.count("skipped"), names(&place.root("t"))), (1, vec!["f".into()]), "{said:?}");
    assert!(said.err.contains("t/.f.ginnel-partial: left out: an unfinished copy"), "{said:?}");
    // Without --partial it is a file as others are.
    place.copies(&["-a", "t", "s:"]);
    assert_eq!(snapshot(&place.root("t")), snapshot(&place.here("t")));
}

#[test]
fn what_else_has_an_unfinished_files_name_stays_as_it_is() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::write(place.here("f"), "new").expect("written");
    fs::write(place.path("victim"), "victim").expect("written");
    let partial = place.root(".f.ginnel-partial");
    for what in ["fifo", "link", "hard", "directory"] {
        match what {
            "fifo" => {
                assert!(Command::new("mkfifo").arg(&partial).status().expect("runs").success());
            }
            "link" => symlink(place.path("victim"), &partial).expect("made"),
            "hard" => fs::hard_link(place.path("victim"), &partial).expect("made"),
            _ => fs::create_dir(&partial).expect("made"),
        }
        let kind = || fs::symlink_metadata(&partial).map(|meta| meta.file_type()).expect("there");
        let was = kind();
        let said = place.cp(&["--partial", "f", "s:"]);
        assert!(said.code == Some(23) && said.err.contains("move it away"), "{what}: {said:?}");
        assert_eq!(kind(), was, "{what}");
        assert_eq!(was.is_fifo(), what == "fifo");
        assert_eq!(fs::read_to_string(place.path("victim")).expect("there"), "victim", "{what}");
        place.copies(&["-I", "f", "s:"]);
        let _ = fs::remove_file(&partial).or_else(|_| fs::remove_dir(&partial));
    }
}
