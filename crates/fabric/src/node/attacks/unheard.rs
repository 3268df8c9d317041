//! Endpoints that as many send to as they can hear.

use super::*;
use crate::matching::Posted;

/// Who was sent what it is to answer, and has no way to whoever sent it, does not wait for ever.
#[test]
fn who_has_an_answer_that_is_not_heard_ends_with_words() {
    const NAME: &str = "unheard::who_has_an_answer_that_is_not_heard_ends_with_words";
    let Some(place) = std::env::var_os(PLACE) else {
        let place = tempfile::tempdir().expect("a directory");
        let ran = again(NAME, place.path()).output().expect("started");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(70) && said.contains("hears no more: this"), "{ran:?}");
        return;
    };
    let path = Path::new(&place).join("mpi");
    let (mut a, mut b) = (open(&path), open(&path));
    let (to, memory, long) = (a.peer(b.id()), Memory::default(), vec![7; 100_000]);
    let message = Message {
        tag: None,
        data: None,
        buffers: Buffers::one(long.as_ptr().cast_mut(), long.len()),
        token: 0,
        report: false,
        delivered: false,
    };
    // SAFETY: the bytes stay for as long as this process.
    unsafe { a.send(to, message) }.expect("room");
    // Nobody looks at what is entered there.
    while a.node().enter_pair(a.id(), a.id().page()).is_ok() {}
    let mut got = vec![0; 100_000];
    let buffers = Buffers::one(got.as_mut_ptr(), got.len());
    let posted =
        Posted { buffers, from: None, tag: 0, ignore: 0, token: 0, report: true, several: None };
    // SAFETY: as above.
    unsafe { b.receive(false, posted) };
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        b.progress(&memory);
    }
}
