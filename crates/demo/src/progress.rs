//! Progress: a bar with the time left on a terminal, one line per measurement elsewhere.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The demo's progress.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    steps: usize,
    done: Cell<usize>,
    started: Instant,
}

impl Progress {
    /// Progress over so many measurements.
    pub fn new(steps: usize) -> Self {
        let bar = stdout().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stdout());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self { bar, steps, done: Cell::new(0), started: Instant::now() }
    }

    /// Says what runs now.
    pub fn now(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// One measurement is over; `what` is its result in words.
    pub fn step(&self, what: &str) {
        self.done.set(self.done.get() + 1);
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => {
                // A reader that has gone is noticed at the end.
                let _ = writeln!(
                    stdout(),
                    "[{}/{}] {what}{}",
                    self.done.get(),
                    self.steps,
                    self.left()
                );
            }
        }
    }

    /// Measurements that will not take place.
    pub fn skip(&self, steps: usize) {
        self.done.set(self.done.get() + steps);
        if let Some(bar) = &self.bar {
            bar.inc(steps as u64);
        }
    }

    /// Something to read now, without disturbing the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn left(&self) -> String {
        let (done, left) = (self.done.get(), self.steps.saturating_sub(self.done.get()));
        let (Ok(done), Ok(left)) = (u32::try_from(done), u32::try_from(left)) else {
            return String::new();
        };
        match self.started.elapsed().checked_div(done) {
            Some(each) if left > 0 => format!("  ({} s left)", (each * left).as_secs()),
            _ => String::new(),
        }
    }
}
