//! The client: finds a server, makes two queues, and copies one way.

use crate::failure::{Code, Failure, Result};
use crate::limit::Limit;
use crate::link::Link;
use crate::names;
use crate::recv::{Allowed, From, Policy, Task, receive};
use crate::report::Report;
use crate::send::send;
use crate::walk::Source;
use crate::wire::{self, Hello, MAGIC, MOST_META, Message, Order, VERSION};
use ginnel::{Error, Keep, Queue, Receiver, Segment, Sender};
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Buffers of the queue in which data goes: bytes, and how many wait. What a segment has room for
/// is taken, the largest first.
const DATA: [(u64, u32); 3] = [(512 << 10, 4), (256 << 10, 4), (64 << 10, 2)];
/// Those of the queue in which answers go. A listing that is answered fits into them.
const ANSWERS: (u64, u32) = (16 << 10, 32);
/// How long a server may take to answer at all.
const GREETING: Duration = Duration::from_secs(10);

/// Which way files go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Upload {
        /// The user's paths.
        sources: Vec<Vec<u8>>,
        /// Where to, below what is offered.
        to: Vec<u8>,
    },
    /// From the server.
    Download {
        /// Paths below what is offered.
        sources: Vec<Vec<u8>>,
        /// The user's path.
        to: Vec<u8>,
    },
}

/// What is to be copied.
#[derive(Debug, Clone)]
pub struct Job {
    /// The server's name.
    pub server: String,
    /// From where to where.
    pub way: Way,
    /// How.
    pub order: Order,
    /// For how long a silent server is waited for; `None`: for ever.
    pub timeout: Option<Duration>,
    /// Bytes of data a second, at most.
    pub rate: Option<u64>,
}

/// A path as users write them: `NAME:PATH` is one of a server, where the colon comes before any
/// slash; anything else is the user's own.
#[must_use]
pub fn place(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let colon = path.iter().position(|&byte| byte == b':' || byte == b'/');
    match colon.filter(|&at| path[at] == b':' && at > 0) {
        Some(at) => (Some(&path[..at]), &path[at + 1..]),
        None => (None, path),
    }
}

/// Copies. `stop` ends it, before the next message.
///
/// # Errors
/// What ended it before it was done. What failed for single files goes to `report`.
pub fn run(
    segment: &Segment,
    job: &Job,
    stop: &Arc<AtomicBool>,
    report: &mut dyn Report,
) -> Result<()> {
    let mut order = job.order.clone();
    order.chunk = job.rate.map_or(u32::MAX, Limit::piece);
    match &job.way {
        Way::Upload { sources, to } => {
            let sources = open_all(sources, Source::of_user, report)?;
            refuse_delete(&order, &sources)?;
            let link = connect(segment, job, stop)?;
            link.send(&Message::Put { order: order.clone(), to: ByteBuf::from(to.clone()) })?;
            send(&link, &sources, &order, report)
        }
        Way::Download { sources, to } => {
            if order.delete && sources.len() > 1 {
                return Err(one_source());
            }
            let link = connect(segment, job, stop)?;
            link.send(&Message::Get(order.clone()))?;
            for path in sources {
                link.send(&Message::Source(ByteBuf::from(path.clone())))?;
            }
            link.send(&Message::Go)?;
            let policy = Policy::new(true, true);
            let allowed = allowed(sources);
            let task = Task { link: &link, from: From::User, to, order: &order, policy, allowed };
            receive(&task, report)
        }
    }
}

/// Opens what can be opened. One that cannot is told, and the others go on.
///
/// # Errors
/// Where none can.
pub fn open_all(
    paths: &[Vec<u8>],
    open: impl Fn(&[u8]) -> std::io::Result<Source>,
    report: &mut dyn Report,
) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut last = None;
    for path in paths {
        match open(path) {
            Ok(source) => sources.push(source),
            Err(error) => {
                let text = match crate::tree::leads_out(&error) {
                    true => "it leads out of the directory that is offered".to_owned(),
                    false => crate::failure::said(&error),
                };
                if let Some((path, text)) = last.replace((path, text)) {
                    report.problem(path, &text, false);
                }
            }
        }
    }
    match last {
        Some((path, text)) if sources.is_empty() => {
            Err(Failure::new(Code::Partial, format!("{}: {text}", names::shown(path))))
        }
        Some((path, text)) => {
            report.problem(path, &text, false);
            Ok(sources)
        }
        None => Ok(sources),
    }
}

fn one_source() -> Failure {
    let text = "--delete goes with one directory: what is not in it is deleted at the destination";
    Failure::new(Code::Usage, text)
}

/// `--delete` is for one directory, so that it is plain what is to be there.
///
/// # Errors
/// Where there are several sources.
pub fn refuse_delete(order: &Order, sources: &[Source]) -> Result<()> {
    let one = sources.len() == 1 && sources.iter().all(Source::is_directory);
    if order.delete && !one { Err(one_source()) } else { Ok(()) }
}

/// What names a server may send, by what it was asked for.
fn allowed(sources: &[Vec<u8>]) -> Allowed {
    let mut tops = HashSet::new();
    for path in sources {
        match crate::walk::taken_apart(path).1 {
            Some(name) => tops.insert(name.to_vec()),
            None => return Allowed::Any,
        };
    }
    Allowed::These(tops)
}

/// Makes the two queues, knocks, and waits for the welcome.
fn connect(segment: &Segment, job: &Job, stop: &Arc<AtomicBool>) -> Result<Link> {
    let upload = matches!(job.way, Way::Upload { .. });
    let (id, rx, tx) = queues_soon(segment, &job.server, upload, stop)?;
    let mut link = Link::new(tx, rx, Arc::clone(stop), "server");
    link.patience = Some(GREETING);
    knock(segment, &job.server, id, stop)?;
    let welcome = link.recv().map_err(|failure| match failure.code {
        Code::Timeout => no_answer(&job.server),
        _ => failure,
    })?;
    match welcome.message {
        Message::Welcome { version, .. } if version != VERSION => {
            let text = format!(
                "the server speaks version {version} of this, not {VERSION}; use the same Ginnel \
                 on both sides"
            );
            return Err(Failure::new(Code::Usage, text));
        }
        Message::Welcome { writable: false, .. } if upload => {
            let text = format!(
                "{} offers its files for reading only; `ginnel cp serve --writable` takes some, too",
                job.server
            );
            return Err(Failure::new(Code::Start, text));
        }
        Message::Welcome { .. } => {}
        _ => return Err(Failure::broken("no welcome")),
    }
    drop(welcome);
    link.patience = job.timeout;
    if let Some(rate) = job.rate {
        link.limit_to(rate);
    }
    Ok(link)
}

fn no_answer(server: &str) -> Failure {
    let text = format!(
        "{server} has not answered for {} s; see whether `ginnel cp serve` is stopped, or what it says",
        GREETING.as_secs()
    );
    Failure::new(Code::NoAnswer, text)
}

/// A client's queues, as soon as others leave it room: their number, and its ends.
fn queues_soon(
    segment: &Segment,
    server: &str,
    upload: bool,
    stop: &Arc<AtomicBool>,
) -> Result<(u64, Receiver, Sender)> {
    let since = Instant::now();
    loop {
        let id = names::random();
        let names = wire::queues(server, id);
        match make_queues(segment, (&names[0], &names[1]), upload) {
            Ok((rx, tx)) => return Ok((id, rx, tx)),
            Err(Error::SegmentFull { .. } | Error::NoMemory)
                if since.elapsed() < GREETING && !stop.load(Ordering::Relaxed) =>
            {
                names.iter().for_each(|name| drop(segment.remove(name)));
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A client's ends of its two queues.
fn make_queues(
    segment: &Segment,
    (to, from): (&str, &str),
    upload: bool,
) -> ginnel::Result<(Receiver, Sender)> {
    let make = |name: &str, (bytes, cells): (u64, u32)| {
        let queue = Queue::new().message_size(bytes).capacity(cells).senders(1).loans(2);
        queue.keep(Keep::WithCreator).create(segment, name)?;
        // Its buffers are taken now: so nobody finds the segment full when it is too late.
        let tx = Sender::open(segment, name).inspect_err(|_| drop(segment.remove(name)))?;
        Ok(tx.of_one_receiver())
    };
    let of_data = |name: &str| {
        let mut last = None;
        for size in DATA {
            match make(name, size) {
                Err(error @ (Error::SegmentFull { .. } | Error::NoMemory)) => last = Some(error),
                other => return other,
            }
        }
        Err(last.unwrap_or(Error::NoMemory))
    };
    // What has one size only comes first.
    let (tx, back) = if upload {
        let back = make(from, ANSWERS)?;
        (of_data(to)?, back)
    } else {
        (make(to, ANSWERS)?, of_data(from)?)
    };
    drop(back);
    Receiver::open(segment, from).map(|rx| (rx, tx))
}

/// Tells the server that there are queues with this number.
fn knock(segment: &Segment, server: &str, id: u64, stop: &Arc<AtomicBool>) -> Result<()> {
    let hello = Hello { magic: MAGIC, version: VERSION, id };
    let bytes = postcard::to_stdvec(&hello).unwrap_or_default();
    let since = Instant::now();
    loop {
        let sent = Sender::open(segment, &wire::door(server)).and_then(|door| {
            let door = door.of_one_receiver();
            let mut loan = door.loan_timeout(bytes.len(), Duration::from_millis(200))?;
            loan.write(0, &bytes);
            loan.send()
        });
        match sent {
            Ok(()) => return Ok(()),
            Err(Error::NotFound { .. }) => return Err(no_server(segment, server)),
            Err(Error::Ended { .. }) => {
                return Err(Failure::new(
                    Code::Start,
                    format!("{server} has ended; start it again"),
                ));
            }
            // Many knock at once.
            Err(Error::TimedOut | Error::InUse { .. }) => {}
            // Their queues may fill the segment until they have been let in.
            Err(Error::SegmentFull { .. } | Error::NoMemory) if since.elapsed() <= GREETING => {}
            Err(error) => return Err(error.into()),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new(Code::Signal, "stopped by a signal"));
        }
        if since.elapsed() > GREETING {
            return Err(no_answer(server));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn no_server(segment: &Segment, server: &str) -> Failure {
    let objects = segment.objects().unwrap_or_default();
    let is_door = |name: &String| name.len() > 3 && !name[3..].contains('.');
    let there: Vec<String> = objects
        .into_iter()
        .filter_map(|object| object.name.strip_prefix("cp.").map(|_| object.name.clone()))
        .filter(is_door)
        .map(|name| names::clean(&name[3..]))
        .collect();
    let there = match there.as_slice() {
        [] => "nobody serves files there".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    let text = format!(
        "nobody named {server} serves files in {}; {there}. On the other side: ginnel cp serve \
         --root DIR --name {server}",
        segment.path().display()
    );
    Failure::new(Code::Start, text)
}

const _: () = assert!(ANSWERS.0 as usize + crate::link::TAIL <= MOST_META);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_any_slash_names_a_server() {
        assert_eq!(place(b"vm3:/dir/x"), (Some(&b"vm3"[..]), &b"/dir/x"[..]));
        assert_eq!(place(b"vm3:"), (Some(&b"vm3"[..]), &b""[..]));
        for own in ["./a:b", "/a:b", "a/b:c", ":x", "plain"] {
            assert_eq!(place(own.as_bytes()), (None, own.as_bytes()), "{own}");
        }
    }

    #[test]
    fn what_may_come_is_what_was_asked_for() {
        let of = |paths: &[&str]| {
            allowed(&paths.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        assert!(matches!(of(&["/a/b", "/c"]), Allowed::These(names) if names.len() == 2));
        assert!(matches!(of(&["/a/b", "/c/"]), Allowed::Any));
        assert!(matches!(of(&[""]), Allowed::Any));
    }
}
