//! The control socket: a visitor sends one line, `status`, `fdb`, `reload` or `trace PORT`, and
//! gets one JSON document, or frames ([`crate::trace`]). A visitor that does not read holds up
//! nobody.

use crate::places::{Place, listen as listen_at};
use crate::poller::{Poller, Token};
use crate::reload::Outcome;
use crate::rests::EXHAUSTED;
use crate::status;
use crate::switch::Switch;
use anyhow::{Context, Result, bail};
use ginnel_daemon::log;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Visitors at once.
const MAX_VISITORS: usize = 64;
/// Bytes of a question.
const MAX_QUESTION: usize = 256;
/// How long one may take to ask, and to take an answer that is no trace.
pub const PATIENCE: Duration = Duration::from_secs(10);

struct Visitor {
    stream: UnixStream,
    question: Vec<u8>,
    /// What it is still to be given.
    answer: Vec<u8>,
    sent: usize,
    traces: bool,
    /// Its answer comes later.
    waits: bool,
    since: Instant,
    wants_room: bool,
}

/// What became of a visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Stays,
    Goes,
}

/// The socket and its visitors.
pub struct Control {
    listener: UnixListener,
    poller: Poller,
    visitors: HashMap<u32, Visitor>,
    next: u32,
}

impl Control {
    /// Listens at `path`. Only the switch's own user may ask: frames are everybody's secrets.
    ///
    /// # Errors
    /// Those of the system, and that another switch is there.
    pub fn new(path: &Path, poller: &Poller) -> Result<Self> {
        let listener = listen_at(Place { socket: path, mode: 0o600, group: None })
            .context("control socket")?;
        poller.watch(&listener, Token::Control)?;
        Ok(Self { listener, poller: poller.clone(), visitors: HashMap::new(), next: 0 })
    }

    /// Lets a visitor in.
    pub fn accept(&mut self, switch: &mut Switch) {
        let now = Instant::now();
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => {
                // Without descriptors it would be reported again and again.
                log!(Error, "accept", why = error);
                self.poller.forget(&self.listener);
                return switch.rests.add(Token::Control, now + EXHAUSTED);
            }
        };
        // It is the switch that lets those wait who wait; but they leave room for others.
        let full = self.visitors.len() >= MAX_VISITORS;
        let may_stay = |one: &Visitor| one.traces || one.waits && !full;
        self.visitors.retain(|_, one| may_stay(one) || now.duration_since(one.since) <= PATIENCE);
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let ready = self.visitors.len() < MAX_VISITORS
            && stream.set_nonblocking(true).is_ok()
            && self.poller.watch(&stream, Token::Visitor(id)).is_ok();
        if ready {
            let (question, answer) = (Vec::new(), Vec::new());
            let (traces, waits, wants_room) = (false, false, false);
            let (sent, since) = (0, now);
            let visitor =
                Visitor { stream, question, answer, sent, traces, waits, since, wants_room };
            self.visitors.insert(id, visitor);
        }
    }

    /// The socket is watched again, after it was not.
    pub fn watch(&self, switch: &mut Switch) {
        if self.poller.watch(&self.listener, Token::Control).is_err() {
            switch.rests.add(Token::Control, Instant::now() + EXHAUSTED);
        }
    }

    /// A visitor has said something, or can be given more.
    pub fn hear(&mut self, id: u32, switch: &mut Switch) {
        let Some(visitor) = self.visitors.get_mut(&id) else { return };
        let mut state = listen(visitor);
        let asks = visitor.answer.is_empty() && !visitor.traces && !visitor.waits;
        if state == State::Stays && asks {
            let end = visitor.question.iter().position(|&byte| byte == b'\n');
            if let Some(end) = end {
                let line = String::from_utf8_lossy(&visitor.question[..end]).into_owned();
                answer(id, visitor, &line, switch);
            }
        }
        if state == State::Stays {
            state = speak(id, visitor, &self.poller);
        }
        if state == State::Goes {
            self.visitors.remove(&id);
            switch.untrace(id);
        }
    }

    /// Gives a visitor an answer that it has waited for.
    pub fn tell(&mut self, id: u32, text: &str, switch: &mut Switch) {
        let Some(visitor) = self.visitors.get_mut(&id).filter(|one| one.waits) else { return };
        (visitor.waits, visitor.since) = (false, Instant::now());
        visitor.answer.extend(text.as_bytes());
        visitor.answer.push(b'\n');
        self.hear(id, switch);
    }

    /// Ends those who look at frames of a port that is no more.
    pub fn end_traces(&mut self, switch: &Switch) {
        self.visitors.retain(|&id, one| !one.traces || switch.tracer.has(id));
    }

    /// Gives those who look at frames what there is.
    pub fn pass_on(&mut self, switch: &mut Switch) {
        if !switch.tracer.has_news() {
            return;
        }
        let readers =
            self.visitors.iter_mut().filter(|(_, one)| one.traces && one.answer.is_empty());
        let mut gone = Vec::new();
        for (&id, visitor) in readers {
            visitor.answer = switch.tracer.take(id);
            if speak(id, visitor, &self.poller) == State::Goes {
                gone.push(id);
            }
        }
        for id in gone {
            self.visitors.remove(&id);
            switch.untrace(id);
        }
    }
}

/// Reads what there is.
fn listen(visitor: &mut Visitor) -> State {
    let mut bytes = [0; MAX_QUESTION];
    loop {
        match visitor.stream.read(&mut bytes) {
            Ok(0) => return State::Goes,
            Ok(len) if visitor.question.len() + len <= MAX_QUESTION => {
                visitor.question.extend_from_slice(&bytes[..len]);
            }
            Ok(_) => return State::Goes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return State::Stays,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return State::Goes,
        }
    }
}

fn answer(id: u32, visitor: &mut Visitor, line: &str, switch: &mut Switch) {
    let wrong = |text: String| serde_json::json!({ "error": text }).to_string();
    let mut words = line.split_whitespace();
    let text = match (words.next(), words.next(), words.next()) {
        (Some("status"), None, None) => status::status(switch),
        (Some("fdb"), None, None) => status::fdb(switch),
        (Some("trace"), Some(name), None) => match switch.trace(id, name) {
            true => {
                visitor.traces = true;
                return visitor.answer.extend(b"{}\n");
            }
            false => wrong(format!("there is no port {name}")),
        },
        (Some("reload"), None, None) => match switch.reload(Some(id)) {
            Ok(()) => {
                visitor.waits = true;
                return;
            }
            Err(why) => serde_json::to_string(&Outcome::refused(why)).unwrap_or_default(),
        },
        _ => wrong("ask for status, fdb, reload or trace PORT".into()),
    };
    visitor.answer.extend(text.into_bytes());
    visitor.answer.push(b'\n');
}

/// Writes what there is room for. A visitor that has its answer goes.
fn speak(id: u32, visitor: &mut Visitor, poller: &Poller) -> State {
    while visitor.sent < visitor.answer.len() {
        match visitor.stream.write(&visitor.answer[visitor.sent..]) {
            Ok(len) => visitor.sent += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return want_room(id, visitor, poller, true);
            }
            Err(_) => return State::Goes,
        }
    }
    let answered = !visitor.answer.is_empty() && !visitor.traces;
    (visitor.sent, visitor.answer) = (0, Vec::new());
    if answered { State::Goes } else { want_room(id, visitor, poller, false) }
}

fn want_room(id: u32, visitor: &mut Visitor, poller: &Poller, want: bool) -> State {
    let changed = std::mem::replace(&mut visitor.wants_room, want) != want;
    if changed && poller.want_room(&visitor.stream, Token::Visitor(id), want).is_err() {
        return State::Goes;
    }
    State::Stays
}

impl Switch {
    /// Begins to copy the frames of the port of this name to a visitor: is there one?
    fn trace(&mut self, visitor: u32, name: &str) -> bool {
        let index = self.ports().find(|port| port.config.name == name).map(|port| port.index);
        let Some(port) = index.and_then(|index| self.port_mut(index)) else { return false };
        port.traced = true;
        self.tracer.add(visitor, index.unwrap_or(0));
        true
    }

    /// A visitor looks at nothing any more.
    fn untrace(&mut self, visitor: u32) {
        self.tracer.remove(visitor);
        for index in 0..u32::try_from(self.ports.len()).unwrap_or(0) {
            let looked_at = self.tracer.looks_at(index);
            if let Some(port) = self.port_mut(index) {
                port.traced = looked_at;
            }
        }
    }
}

/// Asks a switch: the stream on which the answer comes.
///
/// # Errors
/// Where none is there, with what to do.
pub fn ask(path: &Path, question: &str) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(path).with_context(|| {
        let path = path.display();
        format!("{path}: no switch answers here; start ginnel-switch, or name its --control")
    })?;
    writeln!(stream, "{question}")?;
    Ok(stream)
}

/// Asks a switch for what it knows at once: the answer. One that is given nothing for so long
/// (`None`: for ever) hears that as an error.
///
/// # Errors
/// Where none is there, where it ends meanwhile, and where it says nothing.
pub fn answer_of(path: &Path, question: &str, limit: Option<Duration>) -> Result<String> {
    let mut stream = ask(path, question)?;
    stream.set_read_timeout(limit)?;
    let (mut answer, path) = (String::new(), path.display());
    match stream.read_to_string(&mut answer) {
        Ok(_) if answer.ends_with('\n') => Ok(answer),
        Ok(_) => bail!("{path}: the switch has ended, or too many ask it at once: ask again"),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            bail!("{path}: the switch says nothing: its process is stopped, or has no processor")
        }
        Err(error) => Err(error).with_context(|| format!("{path}: the switch's answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::ring::Room;

    #[test]
    fn who_waits_for_a_reload_may_wait_for_long() {
        let place = tempfile::tempdir().expect("a directory");
        let (path, poller) = (place.path().join("control"), Poller::new().expect("a set"));
        let config = Config::new(place.path().into(), Vec::new());
        let room = Room::new(1 << 30);
        let mut switch = Switch::new(&config, &room, poller.clone()).expect("a switch");
        let mut control = Control::new(&path, &poller).expect("a socket");
        let mut visit = |control: &mut Control| {
            let stream = UnixStream::connect(&path).expect("connected");
            control.accept(&mut switch);
            stream
        };
        let _waits = visit(&mut control);
        let _dawdles = visit(&mut control);
        for one in control.visitors.values_mut() {
            one.since = Instant::now().checked_sub(2 * PATIENCE).expect("long ago");
        }
        control.visitors.get_mut(&0).expect("the first").waits = true;
        let _next = visit(&mut control);
        let here = |control: &Control, id| control.visitors.contains_key(&id);
        assert_eq!([0, 1, 2].map(|id| here(&control, id)), [true, false, true]);
        // Not if there is no room for others.
        let others: Vec<_> = (0..MAX_VISITORS).map(|_| visit(&mut control)).collect();
        assert!(!here(&control, 0) && control.visitors.len() == MAX_VISITORS);
        drop(others);
    }
}
