//! Random trees arrive as they are, in both directions, and nothing of them goes again.

use crate::stage::{Place, bytes, snapshot};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

#[derive(Debug, Clone)]
enum What {
    Dir,
    File {
        len: usize,
    },
    /// Pieces of data between holes.
    Sparse {
        len: u64,
        pieces: Vec<(u64, usize)>,
    },
    Link(Vec<u8>),
}

#[derive(Debug, Clone)]
struct Node {
    /// Among the directories that are there before it.
    parent: usize,
    name: Vec<u8>,
    what: What,
    mode: u32,
    time: u32,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_map(|byte| if byte == 0 || byte == b'/' { b'\n' } else { byte });
    prop_oneof![
        4 => "[a-e]{1,3}".prop_map(String::into_bytes),
        2 => prop::collection::vec(byte, 1..20),
        1 => Just(b"-rf *".to_vec()),
        1 => Just(b"a\nb\xff".to_vec()),
        1 => Just(vec![b'x'; 255]),
    ]
}

fn what() -> impl Strategy<Value = What> {
    let len = prop_oneof![4 => 0..9000usize, 1 => Just(4096usize), 1 => 500_000..3_000_000usize];
    let pieces = prop::collection::vec((0..4_000_000u64, 1..70_000usize), 0..4);
    let target = prop_oneof![name(), Just(b"/etc/passwd".to_vec()), Just(b"../../..".to_vec())];
    prop_oneof![
        3 => Just(What::Dir),
        6 => len.prop_map(|len| What::File { len }),
        1 => (0..5_000_000u64, pieces).prop_map(|(len, pieces)| What::Sparse { len, pieces }),
        1 => target.prop_map(What::Link),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    let mode = (0..0o1000u32).prop_map(|mode| mode | 0o600);
    (any::<usize>(), name(), what(), mode, any::<u32>())
        .prop_map(|(parent, name, what, mode, time)| Node { parent, name, what, mode, time })
}

fn build(root: &Path, nodes: &[Node]) {
    let mut directories = vec![root.to_path_buf()];
    let mut made = Vec::new();
    for (seed, node) in nodes.iter().enumerate() {
        let parent = &directories[node.parent % directories.len()];
        let path = parent.join(OsStr::from_bytes(&node.name));
        if node.name == b"." || node.name == b".." || path.symlink_metadata().is_ok() {
            continue;
        }
        let seed = seed as u64;
        match &node.what {
            What::Dir => {
                fs::create_dir(&path).expect("made");
                directories.push(path.clone());
            }
            What::File { len } => fs::write(&path, bytes(seed, *len)).expect("written"),
            What::Sparse { len, pieces } => {
                let file = File::create(&path).expect("made");
                for (at, len) in pieces {
                    file.write_all_at(&bytes(seed, *len), *at).expect("written");
                }
                file.set_len((*len).max(file.metadata().expect("open").len())).expect("set");
            }
            What::Link(target) => {
                symlink(OsStr::from_bytes(target), &path).expect("made");
                continue;
            }
        }
        made.push((path, node));
    }
    // The deepest first: what is made in a directory changes its time.
    for (path, node) in made.iter().rev() {
        let time =
            SystemTime::UNIX_EPOCH + Duration::new(node.time.into(), node.time % 1_000_000_000);
        let is_dir = matches!(node.what, What::Dir);
        let mode = if is_dir { node.mode | 0o700 } else { node.mode };
        File::open(path).and_then(|file| file.set_modified(time)).expect("set");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }
}

fn blocks(path: &Path) -> u64 {
    let meta = path.symlink_metadata().expect("there");
    let below = if meta.is_dir() { fs::read_dir(path).ok() } else { None };
    let below = below.into_iter().flatten().flatten().map(|entry| blocks(&entry.path()));
    below.sum::<u64>() + if meta.is_file() { meta.blocks() } else { 0 }
}

fn arrives(place: &Place, nodes: &[Node]) -> Result<(), TestCaseError> {
    for path in [place.here("tree"), place.here("back"), place.root("up")] {
        let _ = fs::remove_dir_all(path);
    }
    fs::create_dir(place.here("tree")).expect("made");
    build(&place.here("tree"), nodes);
    let was = snapshot(&place.here("tree"));
    let up = place.copies(&["-a", "--json", "tree/", "s:/up/"]);
    prop_assert_eq!(&snapshot(&place.root("up")), &was, "there: {:?}", up);
    let back = place.copies(&["-a", "--json", "s:/up/", "back"]);
    prop_assert_eq!(&snapshot(&place.here("back")), &was, "and back: {:?}", back);
    prop_assert_eq!(snapshot(&place.here("tree")), was, "the source is left as it is");
    // Holes stay holes: some file systems give a piece more room than another did.
    let (source, there) = (blocks(&place.here("tree")), blocks(&place.root("up")));
    prop_assert!(there <= source + 256, "{} blocks of {}", there, source);
    for args in [["tree/", "s:/up"], ["s:/up/", "back"]] {
        let again = place.copies(&[&["-a", "--json"], &args[..]].concat());
        prop_assert_eq!(again.count("copied"), 0, "{:?}", again);
        let compared = place.copies(&[&["-ac", "--json"], &args[..]].concat());
        prop_assert_eq!(compared.count("copied"), 0, "{:?}", compared);
    }
    Ok(())
}

fn run(cases: u32) {
    let place = Place::new();
    let _server = place.serve(&["--writable", "--any-links"]);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    let nodes = prop::collection::vec(node(), 0..40);
    let mut runner = TestRunner::new(config);
    runner.run(&nodes, |nodes| arrives(&place, &nodes)).expect("every tree arrives");
}

#[test]
fn random_trees_arrive_as_they_are() {
    run(12);
}

#[test]
#[ignore = "test-all: as above, for minutes"]
fn many_random_trees_arrive_as_they_are() {
    run(400);
}

#[test]
fn many_small_files_arrive() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    for directory in 0..20 {
        let path = place.here("many").join(format!("d{directory}"));
        fs::create_dir_all(&path).expect("made");
        for file in 0..100 {
            fs::write(path.join(format!("f{file}")), bytes(directory * 100 + file, 4096))
                .expect("written");
        }
    }
    let said = place.copies(&["-a", "--json", "many", "s:"]);
    assert_eq!(said.count("copied"), 2000 + 21, "{said:?}");
    assert_eq!(snapshot(&place.root("many")), snapshot(&place.here("many")));
    place.copies(&["-a", "s:many", "back"]);
    assert_eq!(snapshot(&place.here("back/many")), snapshot(&place.here("many")));
}
