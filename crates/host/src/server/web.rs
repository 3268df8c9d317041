//! The status page and the metrics, on loopback: a few fixed pages, answered once each connection
//! by the loop itself. A library would bring threads or an asynchronous runtime, and wait for slow
//! visitors.

use super::{Server, Source, page};
use crate::keep::Name;
use ginnel_daemon::log;
use ginnel_daemon::question::{ELSEWHERE, MOST, PATIENCE, asks_here};
use rustix::event::Timespec;
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Visitors at once; more are sent away unheard.
const MAX_VISITORS: usize = 32;
/// How long until a port that somebody else has is tried again: anybody may take one, and is not to
/// keep the daemon from serving segments.
pub(crate) const PAUSE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// What the page may load (Content Security Policy Level 3): its own style and script, and what
/// that script asks this daemon for.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// One who asks for a page.
pub(crate) struct Visitor {
    pub stream: TcpStream,
    question: Vec<u8>,
    answer: Option<(Vec<u8>, usize)>,
    until: Instant,
}

impl Visitor {
    /// Is the question complete?
    pub fn answers(&self) -> bool {
        self.answer.is_some()
    }

    /// Reads what is there of the question: complete?
    fn listen(&mut self) -> std::io::Result<bool> {
        let mut bytes = [0; 1024];
        loop {
            if self.question.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(true);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.question.len() >= MOST => {
                    return Err(ErrorKind::InvalidData.into());
                }
                Ok(len) => self.question.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes as much of the answer as there is room for: complete?
    fn speak(&mut self) -> std::io::Result<bool> {
        let Some((answer, written)) = &mut self.answer else { return Ok(false) };
        while *written < answer.len() {
            match self.stream.write(&answer[*written..]) {
                Ok(len) => *written += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// The socket that an earlier instance had, if it listens where the configuration wants it; port 0
/// is any.
fn is_at(listener: &TcpListener, wanted: SocketAddr) -> bool {
    let listens = rustix::net::sockopt::socket_acceptconn(listener).unwrap_or(false);
    let same = |at: SocketAddr| {
        at.ip() == wanted.ip() && (at.port() == wanted.port() || wanted.port() == 0)
    };
    listens && listener.local_addr().is_ok_and(same)
}

impl Server {
    /// Opens the status page: with the socket that an earlier instance had, else with a new one.
    /// Where the port is taken, the daemon goes on without it, and tries again after [`PAUSE`].
    pub(crate) fn open_page(&mut self, kept: Option<OwnedFd>) {
        let Some(address) = self.config.status else {
            return if kept.is_some() {
                self.store.forget(&Name::Page)
            };
        };
        let first = self.page_at.is_none();
        self.page_at = None;
        let there = kept.is_some();
        let kept = kept.map(TcpListener::from).filter(|listener| is_at(listener, address));
        if there && kept.is_none() {
            self.store.forget(&Name::Page);
        }
        if let Err(error) = self.listen(address, kept) {
            self.page_at = Some(Instant::now() + Duration::from_secs(PAUSE.tv_sec.unsigned_abs()));
            if first {
                log!(
                    Warning,
                    "no_status_page",
                    address = address,
                    why = format!("{error:#}"),
                    so = "it is tried again every two seconds",
                    help = "choose another with status = \"127.0.0.1:PORT\", or \"off\""
                );
            }
        }
    }

    fn listen(&mut self, address: SocketAddr, kept: Option<TcpListener>) -> anyhow::Result<()> {
        let (listener, new) = match kept {
            Some(listener) => (listener, false),
            None => (TcpListener::bind(address)?, true),
        };
        listener.set_nonblocking(true)?;
        let url = format!("http://{}/", listener.local_addr()?);
        let copy = Arc::new(OwnedFd::from(listener.try_clone()?));
        self.add(Source::WebDoor(listener))?;
        if new {
            self.store.keep(&Name::Page, &copy);
        }
        log!(Info, "status_page", url = url);
        Ok(())
    }

    /// Somebody is at the status page's door.
    pub(crate) fn visit(&mut self, door: u64) {
        let Some(Source::WebDoor(listener)) = self.sources.get(&door) else { return };
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => {
                return self.pause_doors(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        };
        let visitors =
            self.sources.values().filter(|source| matches!(source, Source::Web(_))).count();
        if visitors < MAX_VISITORS && stream.set_nonblocking(true).is_ok() {
            let visitor = Visitor {
                stream,
                question: Vec::new(),
                answer: None,
                until: Instant::now() + PATIENCE,
            };
            let _ = self.add(Source::Web(visitor));
        }
    }

    /// A visitor's socket is ready.
    pub(crate) fn serve(&mut self, token: u64) {
        let Some(Source::Web(mut visitor)) = self.remove(token) else { return };
        if visitor.answer.is_none() {
            match visitor.listen() {
                Ok(true) => {
                    self.look();
                    visitor.answer = Some((self.answer(&visitor.question), 0));
                }
                Ok(false) => return drop(self.add(Source::Web(visitor))),
                Err(_) => return,
            }
        }
        if visitor.speak().is_ok_and(|done| !done) {
            let _ = self.add(Source::Web(visitor));
        }
    }

    /// Sends away those who take too long.
    pub(crate) fn send_visitors_away(&mut self) {
        let now = Instant::now();
        let late = |source: &Source| matches!(source, Source::Web(visitor) if visitor.until <= now);
        let late: Vec<u64> = self
            .sources
            .iter()
            .filter(|(_, source)| late(source))
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            self.remove(token);
        }
    }

    fn look(&mut self) {
        for segment in &mut self.segments {
            segment.seen.look(&segment.name, &segment.memory, segment.config.size);
            self.metrics.note(segment);
        }
    }

    fn answer(&self, question: &[u8]) -> Vec<u8> {
        let line = question.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|&byte| byte == b' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, kind, body) = match (method, path) {
            _ if !asks_here(question) => {
                ("421 Misdirected Request", "text/plain", ELSEWHERE.into())
            }
            (b"GET" | b"HEAD", b"/") => {
                ("200 OK", "text/html; charset=utf-8", page::html(&page::status(self)))
            }
            (b"GET" | b"HEAD", b"/status.json") => {
                ("200 OK", "application/json", page::json(&page::status(self)))
            }
            (b"GET" | b"HEAD", b"/metrics") => {
                let segments = self
                    .segments
                    .iter()
                    .enumerate()
                    .map(|(index, segment)| (segment, self.processes(index)));
                (
                    "200 OK",
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    self.metrics.text(segments),
                )
            }
            (b"GET" | b"HEAD", b"/style.css") => {
                ("200 OK", "text/css; charset=utf-8", page::STYLE.into())
            }
            (b"GET" | b"HEAD", b"/refresh.js") => {
                ("200 OK", "text/javascript; charset=utf-8", page::SCRIPT.into())
            }
            (b"GET" | b"HEAD", _) => {
                ("404 Not Found", "text/plain", "There are /, /status.json and /metrics.\n".into())
            }
            _ => ("405 Method Not Allowed", "text/plain", "Only GET.\n".into()),
        };
        // It loads nothing from elsewhere and runs no script but its own; no other site may frame
        // it, and no browser keep it.
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             Content-Security-Policy: {POLICY}\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\r\n",
            body.len()
        );
        let body = if method == b"HEAD" { String::new() } else { body };
        (head + &body).into_bytes()
    }
}
