//! `ginnel cp` and `ginnel cp serve`: what the user wants, and what is shown of it. The copying is
//! the crate `ginnel-cp`.

use crate::args::cp::{Cp, CpCommand, Serve};
use crate::objects::{open, open_as};
use crate::size::human;
use ginnel::Options;
use ginnel_cp::{Action, Code, Failure, Job, Order, Report, Way, clean, place, shown};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Version of the JSON.
const VERSION: u32 = 1;
/// Paths that the JSON holds of each kind, at most: the counts go on.
const LISTED: usize = 100_000;

/// Runs it; returns the exit status.
pub fn cp(args: &Cp) -> i32 {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        // The second one ends it at once.
        let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    // A limit of a file's size (ulimit -f) is an error of that file, and that nobody reads what is
    // said is none at all: neither ends a server, or a copy.
    for signal in [signal_hook::consts::SIGXFSZ, signal_hook::consts::SIGPIPE] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    if let Some(CpCommand::Serve(args)) = &args.command {
        return match serve(args, &stop) {
            Ok(()) => 0,
            Err(failure) => fail(&failure),
        };
    }
    let mut screen = Screen::new(args);
    let done = job(args).and_then(|job| {
        let segment = open(args.segment.as_ref())
            .map_err(|error| Failure::new(Code::Start, format!("{error:#}")))?;
        ginnel_cp::run(&segment, &job, &stop, &mut screen)
    });
    screen.end(args, done.err())
}

fn fail(failure: &Failure) -> i32 {
    eprintln!("ginnel: {failure}");
    failure.code as i32
}

fn patience(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn serve(args: &Serve, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let name = args.name.clone().unwrap_or_else(ginnel_cp::default_name);
    let segment = open_as(args.segment.as_ref(), &Options::new())?;
    let quiet: fn(&str) = |_| {};
    let log = if args.verbose { |text: &str| say(&clean(text)) } else { quiet };
    let path = segment.path().display().to_string();
    let mut serve = ginnel_cp::Serve::new(segment, &name, &args.root, log)?;
    serve.writable = args.writable;
    serve.allow(args.owners, args.any_links);
    serve.sessions = args.sessions.into();
    serve.timeout = patience(args.timeout);
    let how = if args.writable { "reading and writing" } else { "reading" };
    serve.run(stop, || {
        say(&format!("{} is {name}: in {path}, for {how}", args.root.display()));
    })
}

/// That nobody reads it any more, or that it goes to a full disk, ends no server.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "ginnel cp serve: {text}");
}

/// What is to be done, by the command line.
fn job(args: &Cp) -> Result<Job, Failure> {
    let wrong = |text: &str| Failure::new(Code::Usage, text);
    let (to, sources) =
        args.paths.split_last().ok_or_else(|| wrong("a source and a destination"))?;
    let (server, to) = place(to.as_bytes());
    let apart: Vec<_> = sources.iter().map(|source| place(source.as_bytes())).collect();
    let mut servers: Vec<_> = apart.iter().map(|(server, _)| *server).collect();
    servers.dedup();
    let paths = || apart.iter().map(|(_, path)| path.to_vec()).collect();
    let (server, way) = match (servers.as_slice(), server) {
        ([None], Some(server)) => (server, Way::Upload { sources: paths(), to: to.to_vec() }),
        ([Some(server)], None) => (*server, Way::Download { sources: paths(), to: to.to_vec() }),
        ([None], None) => {
            return Err(wrong(
                "neither side is a server's (NAME:PATH): cp(1) copies within one machine",
            ));
        }
        ([_], Some(_)) => return Err(wrong("both sides are a server's: copy to here first")),
        _ => return Err(wrong("all sources are to be of one side: of the same server, or here")),
    };
    let server =
        std::str::from_utf8(server).map_err(|_| wrong("a server's name is plain text"))?.to_owned();
    let all = args.archive;
    let order = Order {
        recursive: args.recursive || all,
        links: args.links || all,
        perms: args.perms || all,
        times: args.times || all,
        owner: args.owner || all,
        group: args.group || all,
        numeric_ids: args.numeric_ids,
        dry_run: args.dry_run,
        checksum: args.checksum,
        ignore_times: args.ignore_times,
        partial: args.partial,
        inplace: args.inplace,
        delete: args.delete,
        fsync: args.fsync,
        safe_links: args.safe_links,
        exclude: args.exclude.clone(),
        chunk: 0,
    };
    if order.delete && !order.recursive {
        return Err(wrong("--delete takes -r or -a"));
    }
    let rate = args.bwlimit.filter(|&rate| rate > 0);
    Ok(Job { server, way, order, timeout: patience(args.timeout), rate })
}

/// What is shown while it goes on, and kept for the end.
struct Screen {
    bar: Option<ProgressBar>,
    began: Instant,
    /// Things are named as they are done.
    names: bool,
    json: bool,
    counts: Counts,
    changes: Vec<Value>,
    problems: Vec<Value>,
}

#[derive(Default)]
struct Counts {
    found: u64,
    bytes: u64,
    copied: u64,
    same: u64,
    moved: u64,
    sent: u64,
    deleted: u64,
    skipped: u64,
    failed: u64,
    vanished: u64,
}

impl Screen {
    fn new(args: &Cp) -> Self {
        let shows = std::io::stderr().is_terminal() && !args.quiet && !args.json;
        let bar = shows.then(|| {
            let bar = ProgressBar::new(0);
            let style = "{bytes} of {total_bytes} {wide_bar} {bytes_per_sec}, {eta} left";
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Self {
            bar,
            began: Instant::now(),
            names: args.verbose || args.dry_run,
            json: args.json,
            counts: Counts::default(),
            changes: Vec::new(),
            problems: Vec::new(),
        }
    }

    fn name(&mut self, what: &str, path: &[u8]) {
        if !self.names {
            return;
        }
        let path = shown(path);
        if self.json {
            if self.changes.len() < LISTED {
                self.changes.push(json!({"path": path, "action": what}));
            }
            return;
        }
        let line = if what == "copied" { path } else { format!("{what} {path}") };
        self.print(&line);
    }

    /// A closed pipe is none of the copy's business.
    fn print(&self, line: &str) {
        let write = || drop(writeln!(std::io::stdout(), "{line}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn complain(&self, line: &str) {
        let write = || drop(writeln!(std::io::stderr(), "ginnel: {line}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn end(mut self, args: &Cp, failure: Option<Failure>) -> i32 {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let counts = &self.counts;
        let code = match &failure {
            Some(failure) => failure.code as i32,
            None if counts.failed > counts.vanished => Code::Partial as i32,
            None if counts.vanished > 0 => Code::Vanished as i32,
            None => 0,
        };
        if let Some(failure) = &failure {
            self.complain(&failure.text);
        }
        let seconds = self.began.elapsed().as_secs_f64();
        if args.json {
            let value = json!({
                "version": VERSION,
                "exit": code,
                "error": failure.map(|failure| failure.text),
                "dry_run": args.dry_run,
                "files": counts.found,
                "bytes": counts.bytes,
                "copied": counts.copied,
                "sent": counts.sent,
                "same": counts.same,
                "deleted": counts.deleted,
                "skipped": counts.skipped,
                "failed": counts.failed,
                "seconds": seconds,
                "changes": self.changes,
                "problems": self.problems,
            });
            let _ = writeln!(std::io::stdout(), "{value}");
        } else if self.names {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss
            )]
            let rate = human((counts.sent as f64 / seconds.max(1e-6)) as u64);
            self.print(&format!(
                "{} copied, {} there already, {} deleted, {} failed; {} of {} sent in {seconds:.2} s ({rate}/s)",
                counts.copied,
                counts.same,
                counts.deleted,
                counts.failed,
                human(counts.sent),
                human(counts.bytes)
            ));
        }
        code
    }
}

impl Report for Screen {
    fn found(&mut self, files: u64, bytes: u64) {
        self.counts.found += files;
        self.counts.bytes = self.counts.bytes.saturating_add(bytes);
        if let Some(bar) = &self.bar {
            bar.set_length(self.counts.bytes);
        }
    }

    fn moved(&mut self, bytes: u64) {
        self.counts.moved = self.counts.moved.saturating_add(bytes);
        if let Some(bar) = &self.bar {
            bar.set_position(self.counts.moved);
        }
    }

    fn carried(&mut self, bytes: u64) {
        self.counts.sent += bytes;
    }

    fn became(&mut self, action: Action, path: &[u8]) {
        match action {
            Action::Copied => {
                self.counts.copied += 1;
                self.name("copied", path);
            }
            Action::Attributes => {
                self.counts.same += 1;
                self.name("attributes", path);
            }
            Action::Same => self.counts.same += 1,
            Action::Nothing | Action::Skipped | Action::Failed => {}
        }
    }

    fn deleted(&mut self, path: &[u8]) {
        self.counts.deleted += 1;
        self.name("deleted", path);
    }

    fn skipped(&mut self, path: &[u8], why: &str) {
        self.counts.skipped += 1;
        self.complain(&format!("{}: left out: {}", shown(path), clean(why)));
    }

    fn problem(&mut self, path: &[u8], why: &str, vanished: bool) {
        self.counts.failed += 1;
        self.counts.vanished += u64::from(vanished);
        let (path, why) = (shown(path), clean(why));
        self.complain(&format!("{path}: {why}"));
        if self.problems.len() < LISTED {
            self.problems.push(json!({"path": path, "why": why}));
        }
    }
}
