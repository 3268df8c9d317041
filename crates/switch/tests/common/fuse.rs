//! A filesystem (FUSE) with one file, which can be opened, and answers nothing after that.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// Requests (linux/fuse.h).
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const INIT: u32 = 26;

/// It is mounted until this is dropped.
pub struct Deaf {
    file: Option<OwnedFd>,
    place: tempfile::TempDir,
}

impl Deaf {
    /// `None` where this process may not mount it.
    pub fn mount() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let place = tempfile::tempdir().expect("a directory");
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
        let data = std::ffi::CString::from_vec_with_nul(data.into_bytes()).expect("text");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("deaf", place.path(), "fuse", flags, data.as_c_str()).ok()?;
        std::thread::spawn(move || serve(&device));
        let file = File::options().read(true).write(true).open(place.path().join("file"));
        Some(Self { file: Some(file.expect("opened").into()), place })
    }

    /// The file.
    pub fn file(&self) -> &OwnedFd {
        self.file.as_ref().expect("it is there")
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // Whoever waits for it is told that it is gone.
        let _ = unmount(self.place.path(), UnmountFlags::FORCE | UnmountFlags::DETACH);
        let file = self.file.take();
        std::thread::spawn(move || drop(file));
    }
}

fn serve(mut device: &File) {
    let mut request = vec![0; 1 << 20];
    while let Ok(len) = device.read(&mut request) {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| request[at + n]));
        assert!(len >= 40);
        // `struct fuse_attr`: a number, and at 60 the mode.
        let attributes = |number: u8, mode: u32| {
            let mut bytes = [0; 88];
            (bytes[0], bytes[8]) = (number, 1);
            bytes[60..64].copy_from_slice(&mode.to_le_bytes());
            (bytes[64], bytes[80]) = (1, 0);
            bytes
        };
        let file = attributes(2, 0o100_666);
        let body: Vec<u8> = match word(4) {
            INIT => {
                let mut out = [0; 64];
                (out[0], out[4]) = (7, 31);
                out.to_vec()
            }
            // A node, its generation, for how long both are good: two times.
            LOOKUP => [&[2, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[60; 16], &[0; 8], &file].concat(),
            GETATTR if request[16] == 1 => {
                [&[60; 8][..], &[0; 8], &attributes(1, 0o040_777)].concat()
            }
            GETATTR => [&[60; 8][..], &[0; 8], &file].concat(),
            OPEN => vec![0; 16],
            _ => continue,
        };
        let total = (16 + body.len()) as u32;
        let answer = [&total.to_le_bytes()[..], &[0; 4], &request[8..16], &body].concat();
        if device.write_all(&answer).is_err() {
            return;
        }
    }
}
