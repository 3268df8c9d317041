//! What two runs of one script may answer differently, and why: everything else is a difference.
//!
//! These are left open where they arise, in the interpreter (`tests/differential`) and in what the
//! generator asks, so that a step says the same however the kernel decided:
//!
//! | open | why | what is done |
//! |---|---|---|
//! | how much a full buffer takes | the sizes are the kernel's, and grow | `fill` says "some", and the content is checked at each offset |
//! | how much must be read of a full buffer until it can be written to | a third of the buffer by tcp(7)'s code, another part of a ring | it is drained, or looked at; no more |
//! | when FIN arrives behind a full buffer | it waits for room at the receiver | a close or shutdown there drains in the same step |
//! | SIOCOUTQ | the kernel acknowledges when it likes; a ring counts what is not read | "fits" where it is no more than what was sent |
//!
//! | which edges a stream makes while it is filled and drained | one for each delivery, whose sizes are the kernel's | scripts that fill ask for edges of one direction at a time |
//! | when FIN is acknowledged | within 40 ms, and then it is an edge of its own | a shutdown waits until it is |
//! | when a small write leaves | Nagle's algorithm waits for an acknowledgement that may be put off | every connection has TCP_NODELAY |
//!
//! The rest are the rules below.

/// Answers that may differ.
pub struct Rule {
    /// What it is called in summaries.
    pub name: &'static str,
    /// Why the kernel leaves it open.
    pub why: &'static str,
    /// Whether these two answers to this step are the same by it.
    pub allows: fn(step: &str, plain: &str, carried: &str) -> bool,
}

/// All rules.
pub const RULES: [Rule; 1] = [Rule {
    name: "which waiter",
    why: "of several threads that wait on one set the kernel wakes one after another, and which \
          takes how many of the events is up to the scheduler: together they have the same events",
    allows: which_waiter,
}];

/// The first rule by which these answers are the same, or `None` where they are not. Equal ones
/// are so by no rule.
#[must_use]
pub fn allowed(step: &str, plain: &str, carried: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.allows)(step, plain, carried))
}

/// The events in an answer to `wait`, each as it is written.
#[must_use]
pub fn events(answer: &str) -> Vec<&str> {
    let found = answer.split([' ', ';']).filter(|word| word.contains('/'));
    found.collect()
}

fn sorted(answer: &str) -> Vec<&str> {
    let mut all = events(answer);
    all.sort_unstable();
    all
}

fn which_waiter(step: &str, plain: &str, carried: &str) -> bool {
    let waits = |answer: &str| answer.matches("wait ").count();
    let both = step == "collect" && waits(plain) == 2 && waits(carried) == 2;
    both && sorted(plain) == sorted(carried)
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn two_waiters_may_share_events_as_they_like() {
        let plain = "T: wait 1: IN/7; U: wait 1: OUT/8; ";
        assert!(allowed("collect", plain, "T: wait 2: OUT/8 IN/7; U: wait 0:; ").is_some());
        assert!(allowed("collect", plain, "T: wait 1: OUT/8; U: wait 0:; ").is_none());
        assert!(allowed("wait 3 8 0", "wait 2: IN/7 IN/8", "wait 2: IN/8 IN/7").is_none());
    }
}
