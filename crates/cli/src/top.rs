//! `ginnel top`: the connections and their rates, again and again.

use crate::args::Top;
use crate::report::{Connection, Directory};
use crate::size::human;
use crate::status::print;
use crate::survey::Survey;
use crate::table::{self, Rated, clean};
use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, queue, style, terminal};
use ginnel_node::home::default_directory;
use ginnel_region::{Entry, sys};
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a signal may go unseen.
const TICK: Duration = Duration::from_millis(200);

/// Shows until it is told to stop.
pub fn top(args: &Top) -> Result<()> {
    let interval = Duration::from_secs_f64(args.interval);
    let mut pictures = Pictures::new();
    let count = if args.once { Some(1) } else { args.count };
    if !args.once && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return live(&mut pictures, interval, count);
    }
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        std::thread::sleep(interval);
        if shown > 0 {
            print("\n")?;
        }
        print(&pictures.next(table::width()))?;
        shown += 1;
    }
    Ok(())
}

fn live(pictures: &mut Pictures, interval: Duration, count: Option<u64>) -> Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    // SIGHUP ends it at once: there is no terminal any more that would have to be given back.
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("signals")?;
    }
    let screen = Screen::take()?;
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        let (columns, rows) = terminal::size().unwrap_or((80, 24));
        screen.show(&pictures.next(columns.into()), columns, rows)?;
        shown += 1;
        if wait(interval, &ended)? {
            break;
        }
    }
    Ok(())
}

/// Waits for the next picture. True: the user has seen enough.
fn wait(interval: Duration, ended: &AtomicBool) -> Result<bool> {
    let until = Instant::now() + interval;
    loop {
        if ended.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let ms = i32::try_from(left.min(TICK).as_millis()).unwrap_or(0).max(1);
        if sys::poll(libc::STDIN_FILENO, libc::POLLIN, ms)
            & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL)
            != 0
        {
            // The terminal is gone. (crossterm would read its end of file again and again, and hear
            // of no signal either.)
            return Ok(true);
        }
        if !event::poll(Duration::ZERO)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    return Ok(true);
                }
                _ => {}
            },
            Event::Resize(..) => return Ok(false),
            _ => {}
        }
    }
}

/// The terminal, while it is taken over; given back when dropped, or in a panic.
struct Screen;

impl Screen {
    fn take() -> Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            Self::give_back();
            before(panic);
        }));
        terminal::enable_raw_mode().context("terminal")?;
        let screen = Self;
        let mut out = std::io::stdout();
        queue!(out, terminal::EnterAlternateScreen, cursor::Hide)?;
        out.flush()?;
        Ok(screen)
    }

    fn show(&self, text: &str, columns: u16, rows: u16) -> Result<()> {
        let mut out = std::io::stdout();
        queue!(out, terminal::BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
        for (row, line) in (0..rows).zip(text.lines().chain(std::iter::repeat(""))) {
            let line: String = line.chars().take(usize::from(columns)).collect();
            queue!(
                out,
                cursor::MoveTo(0, row),
                style::Print(line),
                terminal::Clear(terminal::ClearType::UntilNewLine)
            )?;
        }
        queue!(out, terminal::EndSynchronizedUpdate)?;
        out.flush()?;
        Ok(())
    }

    fn give_back() {
        let mut out = std::io::stdout();
        let _ = queue!(out, cursor::Show, terminal::LeaveAlternateScreen);
        let _ = out.flush();
        let _ = terminal::disable_raw_mode();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        Self::give_back();
    }
}

/// Counters of a connection.
#[derive(Clone, Copy)]
struct Counters {
    ring: u64,
    tcp: u64,
    wakes: u64,
}

impl Counters {
    fn of(connection: &Connection) -> Self {
        let wakes = connection.wakes.wrapping_add(connection.tokens);
        Self { ring: connection.ring_bytes(), tcp: connection.tcp_bytes(), wakes }
    }
}

/// One picture after the other, each with the rates since the one before.
struct Pictures {
    survey: Survey,
    before: HashMap<(u64, u64), Counters>,
    at: Instant,
}

impl Pictures {
    fn new() -> Self {
        let mut survey = Survey::new(default_directory());
        let before = counters(&survey.look(false));
        Self { survey, before, at: Instant::now() }
    }

    fn next(&mut self, width: usize) -> String {
        // Made anew where the directory came or went, so that its owner is known.
        if !self.survey.directory().is_dir() {
            self.survey = Survey::new(default_directory());
        }
        let seen = self.survey.look(false);
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let text = picture(&seen, &self.before, seconds, width);
        self.before = counters(&seen);
        text
    }
}

fn counters(seen: &Directory) -> HashMap<(u64, u64), Counters> {
    seen.connections
        .iter()
        .map(|connection| ((connection.cookie, connection.generation), Counters::of(connection)))
        .collect()
}

fn picture(
    seen: &Directory,
    before: &HashMap<(u64, u64), Counters>,
    seconds: f64,
    width: usize,
) -> String {
    let mut rows: Vec<Rated> =
        seen.connections.iter().map(|connection| rated(connection, before, seconds)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.ring.saturating_add(row.tcp)));
    let sum = |value: fn(&Rated) -> u64| rows.iter().map(value).fold(0u64, u64::saturating_add);
    let accelerated = seen.connections.iter().filter(|connection| connection.accelerated()).count();
    let mut text = format!(
        "ginnel: {} processes, {accelerated} of {} ends accelerated; {}/s by ring, {}/s by TCP, {} wake-ups/s\n",
        seen.processes.len(),
        rows.len(),
        human(sum(|row| row.ring)),
        human(sum(|row| row.tcp)),
        sum(|row| row.wakes),
    );
    for segment in &seen.segments {
        let state = match (&segment.error, segment.in_use()) {
            (Some(error), _) => error.clone(),
            (None, used) => {
                format!("{} of {} in use", human(used.unwrap_or(0)), human(segment.size))
            }
        };
        text +=
            &format!("segment {}: {state}{}\n", clean(&segment.name), objects(&segment.objects));
    }
    if let Some(error) = &seen.error {
        text += &format!("{error}\n");
    }
    text.push('\n');
    if rows.is_empty() {
        text + "No connection is open.\n"
    } else {
        text + &table::rates(&rows, width)
    }
}

/// How many named objects there are, and the largest of them; `ginnel ls` shows who uses each.
fn objects(entries: &[Entry]) -> String {
    let bytes = entries.iter().map(|entry| entry.size).fold(0u64, u64::saturating_add);
    let Some(largest) = entries.iter().max_by_key(|entry| entry.size) else { return String::new() };
    let named = |entry: &Entry| {
        let name = clean(&String::from_utf8_lossy(&entry.name));
        format!("{} {name}", ginnel::Kind::of(entry.kind).name())
    };
    match entries {
        [one] => format!("; 1 object: {} of {}", named(one), human(bytes)),
        _ => format!(
            "; {} objects of {}, the largest {}",
            entries.len(),
            human(bytes),
            named(largest)
        ),
    }
}

fn rated<'a>(
    connection: &'a Connection,
    before: &HashMap<(u64, u64), Counters>,
    seconds: f64,
) -> Rated<'a> {
    let now = Counters::of(connection);
    // What came since the last picture began at nothing.
    let then = before
        .get(&(connection.cookie, connection.generation))
        .copied()
        .unwrap_or(Counters { ring: 0, tcp: 0, wakes: 0 });
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate, rounded"
    )]
    let rate =
        |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds.max(0.001)).round() as u64;
    Rated {
        connection,
        ring: rate(now.ring, then.ring),
        tcp: rate(now.tcp, then.tcp),
        wakes: rate(now.wakes, then.wakes),
    }
}
