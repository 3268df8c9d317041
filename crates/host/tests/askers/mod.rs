//! Processes that ask `ginnel-broker`, as far as it can tell.

use ginnel_region::sys::Fd;
use ginnel_tcp::broker::{Answer, Beside, Heard, Question, Verdict, ask, connect, hear};
use ginnel_tests::daemon::Broker;
use ginnel_tests::{is_root, skip};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::set_thread_res_uid;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Another user.
pub const NOBODY: u32 = 65534;
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    (client, listener.accept().expect("accepted").0)
}

/// Root, and a kernel that shows its types; says so where not.
pub fn possible(test: &str) -> bool {
    if !is_root() || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip(test, "needs root, and a kernel with BPF and its type information");
        return false;
    }
    true
}

/// A process that asks, as far as the broker can tell.
pub struct Asker(pub Fd);

impl Asker {
    pub fn new(broker: &Broker) -> Self {
        Self(connect(&broker.socket()).expect("it listens"))
    }

    pub fn hand_in(&self, stream: &TcpStream, connected: bool, number: u64) {
        ask(self.0.0, &Question { connected, number }, stream.as_raw_fd()).expect("asked");
    }

    /// The next answer that is not "it waits", and the memory beside it.
    pub fn answer(&self) -> (Answer, Option<Fd>) {
        let (answer, beside) = self.whole_answer();
        (answer, beside.memory)
    }

    pub fn whole_answer(&self) -> (Answer, Beside) {
        let until = Instant::now() + PATIENCE;
        loop {
            match hear(self.0.0) {
                Heard::Answer(Answer { verdict: Verdict::Waits, .. }, _) => {}
                Heard::Answer(answer, beside) => return (answer, beside),
                Heard::Nothing => std::thread::sleep(Duration::from_millis(1)),
                Heard::Gone => panic!("it hangs up"),
            }
            assert!(Instant::now() < until, "no answer");
        }
    }

    pub fn waits(&self) {
        let until = Instant::now() + PATIENCE;
        while !matches!(
            hear(self.0.0),
            Heard::Answer(Answer { verdict: Verdict::Waits, .. }, Beside { memory: None, .. })
        ) {
            assert!(Instant::now() < until, "no answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for an answer, and leaves it unread.
    pub fn is_answered(&self) {
        let mut said = libc::pollfd { fd: self.0.0, events: libc::POLLIN, revents: 0 };
        let limit = i32::try_from(PATIENCE.as_millis()).expect("seconds");
        // SAFETY: one entry, which is writable.
        assert_eq!(unsafe { libc::poll(&raw mut said, 1, limit) }, 1, "no answer");
    }

    pub fn verdict(&self) -> Verdict {
        self.answer().0.verdict
    }
}

/// Has this thread, and no other, be another user's.
pub fn become_user(user: u32) {
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(user), Uid::ROOT).expect("this thread's");
}

/// So many descriptors as there may be.
pub fn raise_limit() {
    let most = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: most.maximum, maximum: most.maximum })
        .expect("may be raised");
}
