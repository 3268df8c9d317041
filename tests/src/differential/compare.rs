//! Two runs of one script, compared step by step, and the kind of the first difference: what
//! differences are counted and minimised by.

use super::{Said, Script, limits, rules};

/// The first step to which two runs answered differently.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Its place among the steps.
    pub at: usize,
    /// What the plain run answered.
    pub plain: String,
    /// What the other answered.
    pub carried: String,
    /// Its kind, in a few words.
    pub kind: String,
}

/// By which known limits two runs of a script differ.
pub type Limits = Vec<&'static str>;

/// Compares two runs. What differs by no rule, nor in a kind that begins with one of `ignored`, is a
/// difference, or one of Ginnel's [limits](super::limits).
///
/// # Errors
/// The first difference.
pub fn compare(
    script: &Script,
    plain: &Said,
    carried: &Said,
    ignored: &[String],
) -> Result<Limits, Difference> {
    let mut apart = super::apart::Apart::default();
    let mut met = Limits::new();
    for (at, step) in script.steps.iter().enumerate() {
        let answer = |said: &Said| said.answers.get(at).cloned().unwrap_or_default();
        let (plain, carried) = (answer(plain), answer(carried));
        if plain == carried {
            apart.note_same(script, at, &plain);
            continue;
        }
        if let Some(rule) = rules::allowed(script, at, &plain, &carried) {
            apart.note(script, at, rule);
            apart.note_same(script, at, &plain);
        } else if apart.allow(script, at, &plain, &carried) {
        } else if let Some(limit) = limits::known(script, at, &plain, &carried) {
            apart.note(script, at, limit);
            met.push(limit.name);
        } else {
            let kind = kind(step, &plain, &carried);
            if ignored.iter().any(|ignored| kind.starts_with(ignored)) {
                continue;
            }
            return Err(Difference { at, plain, carried, kind });
        }
    }
    met.dedup();
    if plain.broken == carried.broken {
        return Ok(met);
    }
    let text = |said: &Said| said.broken.clone().unwrap_or_else(|| "ends well".to_owned());
    let kind = "the end".to_owned();
    Err(Difference { at: script.steps.len(), plain: text(plain), carried: text(carried), kind })
}

fn kind(step: &str, plain: &str, carried: &str) -> String {
    let words = step.split(' ').filter(|word| !matches!(*word, "B" | "T" | "U"));
    let call = words.clone().next().unwrap_or_default();
    let call = match call {
        "pwait" => "wait",
        "ppoll" => "poll",
        "write" | "send" | "writev" | "sendmsg" | "sendfile" => "write",
        "read" | "recv" | "readv" | "recvmsg" => "read",
        other => other,
    };
    let how = match () {
        () if carried == "HANG" || carried.contains("gone") => "hangs or ends".to_owned(),
        () if carried.is_empty() => "is not reached".to_owned(),
        () if matches!(call, "wait" | "poll" | "select" | "collect") => of_events(plain, carried),
        () => format!("{} for {}", without_numbers(carried), without_numbers(plain)),
    };
    format!("{call}: {how}")
}

fn without_numbers(answer: &str) -> String {
    let kept = |word: &&str| !word.chars().all(|c| c.is_ascii_digit());
    let number = |word: &str| word.chars().all(|c| c.is_ascii_digit()) && word != "0";
    let some = if answer.split(' ').any(number) { " some" } else { "" };
    answer.split(' ').filter(kept).collect::<Vec<_>>().join(" ") + some
}

/// An event's bits and its data.
fn parts(event: &str) -> (&str, &str) {
    event.split_once('/').unwrap_or((event, ""))
}

fn of_events(plain: &str, carried: &str) -> String {
    let (mut missing, mut extra) = (rules::events(plain), rules::events(carried));
    if missing.is_empty() && extra.is_empty() {
        return format!("{} for {}", without_numbers(carried), without_numbers(plain));
    }
    let full = plain.to_owned();
    missing.retain(|event| match extra.iter().position(|other| other == event) {
        Some(at) => {
            extra.remove(at);
            false
        }
        None => true,
    });
    if missing.is_empty() && extra.is_empty() {
        return "order".to_owned();
    }
    // The same descriptor with other bits.
    for event in &missing {
        let (bits, data) = parts(event);
        if let Some(other) = extra.iter().find(|other| parts(other).1 == data) {
            return format!("{} for {bits}", parts(other).0);
        }
    }
    let room_for = rules::events(&full).len() == rules::events(carried).len();
    match (missing.first(), extra.first()) {
        (Some(_), Some(_)) if room_for => "another event".to_owned(),
        (Some(event), _) => format!("{} is missing", parts(event).0),
        (None, Some(event)) => format!("{} too many", parts(event).0),
        (None, None) => "order".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn differences_have_kinds() {
        let step = "T wait 3 8 0";
        assert_eq!(kind(step, "wait 2: IN/1 IN/2", "wait 2: IN/2 IN/1"), "wait: order");
        assert_eq!(kind(step, "wait 1: IN|RDHUP/1", "wait 1: IN/1"), "wait: IN for IN|RDHUP");
        assert_eq!(kind(step, "wait 2: IN/7 IN/7", "wait 1: IN/7"), "wait: IN is missing");
        assert_eq!(kind(step, "wait 0:", "wait 1: OUT/7"), "wait: OUT too many");
        assert_eq!(
            kind("recv 1 5 -", "got ECONNRESET", "got EAGAIN"),
            "read: got EAGAIN for got ECONNRESET"
        );
        assert_eq!(kind("read 1 5", "got 5", "got 3"), "read: got some for got some");
    }
}
