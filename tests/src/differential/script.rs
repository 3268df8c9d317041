//! Scripts: the text that `tests/differential/interpret.c` executes, made from a seed.

use super::generate;

/// The header's line of a script for two processes.
pub const BETWEEN: &str = "between two processes";

/// A list of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What it is called in messages: its seed or its file.
    pub name: String,
    /// Comments before the steps, without their `#`.
    pub header: Vec<String>,
    /// The steps, one a line.
    pub steps: Vec<String>,
}

impl Script {
    /// The one that `seed` stands for.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let steps = generate::steps(seed, false);
        Self { name: format!("seed {seed}"), header: Vec::new(), steps }
    }

    /// The same for two processes, of which each may be in a machine of its own.
    #[must_use]
    pub fn between(seed: u64) -> Self {
        let header = vec![BETWEEN.to_owned()];
        Self { name: format!("between {seed}"), header, steps: generate::steps(seed, true) }
    }

    /// Whether it is for two processes, of which none forked the other.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.header.iter().any(|line| line == BETWEEN)
    }

    /// From a file's text.
    #[must_use]
    pub fn parse(name: &str, text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let (header, steps): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('#'));
        let comment = |line: &str| line.trim_start_matches('#').trim().to_owned();
        Self {
            name: name.to_owned(),
            header: header.into_iter().map(comment).collect(),
            steps: steps.into_iter().map(str::to_owned).collect(),
        }
    }

    /// What the header says after `key:`.
    #[must_use]
    pub fn says(&self, key: &str) -> Option<&str> {
        self.header.iter().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
    }

    /// As a file's text.
    #[must_use]
    pub fn text(&self) -> String {
        let header = self.header.iter().map(|line| format!("# {line}\n"));
        header.chain(self.steps.iter().map(|step| format!("{step}\n"))).collect()
    }

    /// What the interpreter is given: a line for each step, of whose number it speaks.
    #[must_use]
    pub fn program(&self) -> String {
        self.steps.join("\n") + "\n"
    }

    /// The same with other steps.
    #[must_use]
    pub fn with_steps(&self, steps: Vec<String>) -> Self {
        Self { steps, ..self.clone() }
    }

    /// How many connections it has exchange bytes before it looks at them, so that both directions
    /// are to be carried by then.
    #[must_use]
    pub fn warmed(&self) -> u64 {
        self.steps.iter().filter(|step| step.starts_with("tcp ") && step.ends_with(" both")).count()
            as u64
    }

    /// The bytes that its streams hold unread at most, so that rings which hold fewer are no use.
    #[must_use]
    pub fn room(&self) -> u64 {
        let room = |step: &String| step.strip_prefix("room ")?.parse().ok();
        self.steps.iter().find_map(room).unwrap_or(2000)
    }
}
