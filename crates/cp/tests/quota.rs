//! A file system that says only at the close that there was no room, as NFS and many in user space
//! do: what was there before stays.

use crate::stage::{Place, Said};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Requests (linux/fuse.h).
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const UNLINK: u32 = 10;
const RENAME: u32 = 12;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const CREATE: u32 = 35;
const BATCH_FORGET: u32 = 42;
const RENAME2: u32 = 45;

/// One directory of files: their numbers by their names, and their bytes.
#[derive(Default)]
struct Files {
    names: BTreeMap<Vec<u8>, u64>,
    bytes: BTreeMap<u64, Vec<u8>>,
}

/// It is mounted until this is dropped.
struct Full {
    place: PathBuf,
    files: Arc<Mutex<Files>>,
}

impl Full {
    /// `None` where this process may not mount it.
    fn mount(place: &Path) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
        let data = std::ffi::CString::from_vec_with_nul(data.into_bytes()).expect("text");
        mount("full", place, "fuse", MountFlags::NOSUID | MountFlags::NODEV, data.as_c_str())
            .ok()?;
        let files = Arc::new(Mutex::new(Files::default()));
        let its = Arc::clone(&files);
        std::thread::spawn(move || serve(&device, &its));
        Some(Self { place: place.to_owned(), files })
    }

    fn put(&self, name: &str, content: &[u8]) {
        let mut files = self.files.lock().expect("whole");
        let number = files.bytes.len() as u64 + 2;
        files.names.insert(name.into(), number);
        files.bytes.insert(number, content.to_vec());
    }

    /// What a name has.
    fn content(&self, name: &str) -> Option<Vec<u8>> {
        let files = self.files.lock().expect("whole");
        files.names.get(name.as_bytes()).and_then(|number| files.bytes.get(number)).cloned()
    }

    fn names(&self) -> usize {
        self.files.lock().expect("whole").names.len()
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = unmount(&self.place, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

fn attributes(files: &Files, number: u64) -> [u8; 88] {
    let mut bytes = [0; 88];
    let size = files.bytes.get(&number).map_or(0, Vec::len) as u64;
    let mode: u32 = if number == 1 { 0o040_755 } else { 0o100_644 };
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&size.to_le_bytes());
    bytes[60..64].copy_from_slice(&mode.to_le_bytes());
    bytes[64] = 1;
    bytes
}

/// A node, its generation, and for how long both are good: not at all.
fn entry(files: &Files, number: u64) -> Vec<u8> {
    [&number.to_le_bytes()[..], &[0; 32], &attributes(files, number)].concat()
}

fn serve(mut device: &File, files: &Mutex<Files>) {
    let mut request = vec![0; 1 << 20];
    while let Ok(len) = device.read(&mut request) {
        assert!(len >= 40);
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| request[at + n]));
        let code = word(4);
        if code == FORGET || code == BATCH_FORGET {
            continue;
        }
        let answer = answer(code, &request[16..len], &mut files.lock().expect("whole"));
        let (error, body) = answer.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let total = u32::try_from(16 + body.len()).expect("small");
        let head = [&total.to_le_bytes()[..], &error.to_le_bytes(), &request[8..16]].concat();
        if device.write_all(&[head, body].concat()).is_err() {
            return;
        }
    }
}

/// What a request is answered; its node comes first, its own words begin at 24.
fn answer(code: u32, request: &[u8], files: &mut Files) -> Result<Vec<u8>, i32> {
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| request[at + n]));
    let text =
        |at: usize| request[at..].split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
    let (node, body) = (long(0), 24);
    let missing = libc_errno::ENOENT;
    match code {
        INIT => {
            let mut out = [0; 64];
            (out[0], out[4], out[22]) = (7, 31, 1);
            Ok(out.to_vec())
        }
        LOOKUP => {
            let number = *files.names.get(&text(body)).ok_or(missing)?;
            Ok(entry(files, number))
        }
        GETATTR | SETATTR => Ok([&[0; 16][..], &attributes(files, node)].concat()),
        OPEN | OPENDIR => Ok(vec![0; 16]),
        CREATE => {
            let number = files.bytes.len() as u64 + 2;
            files.names.insert(text(body + 16), number);
            files.bytes.insert(number, Vec::new());
            Ok([entry(files, number), vec![0; 16]].concat())
        }
        READ => {
            let (at, len) = (long(body + 8) as usize, long(body + 16) as u32 as usize);
            let bytes = files.bytes.get(&node).ok_or(missing)?;
            Ok(bytes.iter().skip(at).take(len).copied().collect())
        }
        WRITE => {
            let (at, data) = (long(body + 8) as usize, &request[body + 40..]);
            let bytes = files.bytes.get_mut(&node).ok_or(missing)?;
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
            Ok([&(data.len() as u32).to_le_bytes()[..], &[0; 4]].concat())
        }
        FLUSH => match files.bytes.get(&node) {
            Some(bytes) if bytes.len() > 100 => Err(libc_errno::EDQUOT),
            _ => Ok(Vec::new()),
        },
        UNLINK => files.names.remove(&text(body)).map(|_| Vec::new()).ok_or(missing),
        RENAME | RENAME2 => {
            let from = text(if code == RENAME { body + 8 } else { body + 16 });
            let to = text(if code == RENAME { body + 9 } else { body + 17 } + from.len());
            let number = files.names.remove(&from).ok_or(missing)?;
            files.names.insert(to, number);
            Ok(Vec::new())
        }
        READDIR | RELEASE | RELEASEDIR => Ok(Vec::new()),
        _ => Err(libc_errno::ENOSYS),
    }
}

/// By their numbers on the wire, which are Linux's.
mod libc_errno {
    pub const ENOENT: i32 = 2;
    pub const ENOSYS: i32 = 38;
    pub const EDQUOT: i32 = 122;
}

#[test]
fn no_room_that_is_told_at_the_close_leaves_the_old_file() {
    let place = Place::new();
    let Some(full) = Full::mount(&place.path("root")) else {
        return println!("skipped: takes the right to mount, and FUSE");
    };
    full.put("f", b"old");
    let server = place.serve(&["--writable"]);
    std::fs::write(place.here("f"), vec![b'x'; 1000]).expect("written");
    for how in [&["-I"][..], &["-I", "--partial"]] {
        let said: Said = place.cp(&[how, &["f", "s:"]].concat());
        assert_eq!(full.content("f").as_deref(), Some(&b"old"[..]), "{said:?}");
        assert!(
            said.code == Some(11) && said.err.contains("f: putting it in its place"),
            "{said:?}"
        );
        assert!(said.err.contains("quota") && said.err.contains("is kept"), "{said:?}");
        let kept = full.content(".f.ginnel-partial").is_some();
        assert_eq!((full.names(), kept), (1 + usize::from(kept), how.len() == 2), "{said:?}");
    }
    std::fs::write(place.here("f"), b"small").expect("written");
    place.copies(&["-I", "f", "s:"]);
    assert_eq!(full.content("f").as_deref(), Some(&b"small"[..]));
    drop(server);
}
