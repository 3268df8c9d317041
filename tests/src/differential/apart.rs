//! Which sets have told other events in one run than in the other, by a rule, and what is still
//! compared of them.

use super::Script;
use super::asked::{Asked, gives, waits_on};
use super::rules::{Rule, events, sorted};

/// The sets that have told other events in one run than in the other, by a rule that
/// [parts](Rule::parts) them.
#[derive(Default)]
pub struct Apart(Vec<u64>);

impl Apart {
    /// By this rule the answers to step `at` of a script may differ.
    pub fn note(&mut self, script: &Script, at: usize, rule: &Rule) {
        if rule.parts {
            self.0.extend(Asked { script, at }.sets());
        }
    }

    /// The answers to step `at` are the same, or so by a rule. But where there was no room for
    /// more, and one data stands for several registrations, they may be of different ones.
    pub fn note_same(&mut self, script: &Script, at: usize, answer: &str) {
        let asked = Asked { script, at };
        if !asked.waits() || !asked.rooms().contains(&events(answer).len()) {
            return;
        }
        let sets = asked.sets();
        let given =
            |set: u64, data: &str| asked.before().filter(|step| gives(step, set, data)).count();
        let ambiguous = |event: &&str| {
            event
                .split_once('/')
                .is_some_and(|(_, data)| sets.iter().any(|&set| given(set, data) > 1))
        };
        if events(answer).iter().any(ambiguous) {
            self.0.extend(&sets);
        }
    }

    /// May step `at` differ for what was told before? A set that tells of levels alone has the same
    /// events all the same, in another order. Of edges, of what is told once, and of sets in sets,
    /// each run may have told some that the other has yet to tell: there nothing is compared any
    /// more.
    #[must_use]
    pub fn allow(&self, script: &Script, at: usize, plain: &str, carried: &str) -> bool {
        let asked = Asked { script, at };
        if !asked.waits() {
            // Whether the set itself is ready.
            let of_others = |answer| {
                events(answer)
                    .into_iter()
                    .filter(|event| !self.is_of_set(event))
                    .collect::<Vec<_>>()
            };
            let asks = asked.step().contains("poll ") || asked.step().contains("select ");
            return asks && !self.0.is_empty() && of_others(plain) == of_others(carried);
        }
        let sets = asked.sets();
        // One that waits beside this step may have had some.
        let beside = asked.step() != "collect"
            && asked.gone().any(|step| sets.iter().any(|set| waits_on(step, *set)));
        let touched = beside || sets.iter().any(|set| self.reaches(&asked, *set));
        touched
            && (sorted(plain) == sorted(carried) || sets.iter().any(|set| !asked.is_level(*set)))
    }

    /// Is `event`, of `poll` or `select`, one of these sets'?
    fn is_of_set(&self, event: &str) -> bool {
        let slot = event.split_once('/').and_then(|(_, slot)| slot.parse().ok());
        slot.is_some_and(|slot| self.0.contains(&slot))
    }

    /// Is `set` one of these, or does it have one of them in it?
    fn reaches(&self, asked: &Asked, set: u64) -> bool {
        self.0.contains(&set) || asked.registered_in(set).any(|slot| self.0.contains(&slot))
    }
}
