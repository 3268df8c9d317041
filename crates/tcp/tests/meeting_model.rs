//! How two ends meet and prove themselves (`docs/protocol.md`, *Meeting*), walked to the last
//! state. One connection has two true ends, of which both are in the segment or only one. A
//! stranger is there too: he reads and writes every shared word, so whatever an end reads is what
//! he chose. He knows each nonce and each proof that was ever shown, and has a nonce of his own.
//! Proofs (the tags of the key exchange) are terms that stand for themselves: who does not hold an
//! end cannot make one, and learns nothing from one. That a secret is not guessed in the two tries
//! that an end allows is an assumption here; that nobody can try at leisure is the exchange's.
//!
//! Nothing here uses the crate's code: it is the rules that are checked. Then each rule is left
//! out in turn, and the checker must find the run that goes wrong.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// How often each end begins anew.
const ATTEMPTS: u8 = 2;
/// The stranger's nonce.
const FOREIGN: u8 = u8::MAX;

/// A rule, left out on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    /// Whatever is shown counts as a proof.
    ProofUnchecked,
    /// The hash has no key: anybody can make any.
    HashUnkeyed,
    /// The nonces are not hashed.
    NoncesUnhashed,
    /// An end that begins anew keeps its nonce.
    NonceKept,
    /// An end hashes what stands in the channel as its own nonce.
    OwnNonceFromChannel,
    /// The hash does not say which side shows it.
    SideUnhashed,
    /// An end shows its counts before it has looked at the proof.
    CountsFirst,
}

/// What is hashed, besides the connection's numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Term {
    /// Which end is side 0: the addresses are hashed in the order of the sides.
    first: u8,
    nonces: [u8; 2],
    shower: u8,
}

/// A hash that was shown, and what the checker knows of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Shown {
    term: Term,
    /// The end that made it; `None`: the stranger.
    maker: Option<u8>,
    /// The maker took this for the other end's nonce.
    met: u8,
}

/// How far an end has come in its present attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Idle,
    /// Its nonce stands in the segment.
    Drawn,
    /// It is in a channel, on this side, and expects this hash.
    Met {
        own: Term,
        expected: Term,
        other: u8,
        showed: bool,
    },
    /// It has found this hash right.
    Proved(Shown),
    Agreed(Shown),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct End {
    stage: Stage,
    attempts: u8,
    counts: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    ends: [End; 2],
    /// All that was ever shown, in order.
    shown: Vec<Shown>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Draw,
    /// Into a channel: on which side, and what stands there as the own and the other's nonce.
    Meet {
        side: u8,
        own: u8,
        other: u8,
    },
    Show,
    /// Looks at a hash: the one that was shown at this place, or a term of the stranger's own.
    Look(Shown),
    ShowCounts,
    Agree,
}

#[derive(Clone, Copy, Debug)]
struct Meeting {
    inside: [bool; 2],
    broken: Option<Broken>,
}

/// The nonce that end `e` has in its attempt `attempt`, as the checker names it.
fn nonce(e: u8, attempt: u8) -> u8 {
    e * ATTEMPTS + attempt
}

impl Meeting {
    fn is_broken(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    /// The value of a nonce: a fresh one is like no other.
    fn value(&self, nonce: u8) -> u8 {
        if self.is_broken(Broken::NonceKept) && nonce != FOREIGN { nonce / ATTEMPTS } else { nonce }
    }

    fn term(&self, e: u8, side: u8, own: u8, other: u8, shower: u8) -> Term {
        let (own, other) = (self.value(own), self.value(other));
        let nonces = if side == 0 { [own, other] } else { [other, own] };
        Term {
            first: if side == 0 { e } else { 1 - e },
            nonces: if self.is_broken(Broken::NoncesUnhashed) { [0; 2] } else { nonces },
            shower: if self.is_broken(Broken::SideUnhashed) { 0 } else { shower },
        }
    }

    /// Every nonce that was ever seen, and the stranger's.
    fn nonces(state: &State) -> impl Iterator<Item = u8> {
        let drawn = |e: u8| {
            let end = state.ends[usize::from(e)];
            (0..end.attempts).map(move |attempt| nonce(e, attempt))
        };
        drawn(0).chain(drawn(1)).chain([FOREIGN])
    }

    /// Is this what the true other end made for this very meeting?
    fn is_true(e: u8, state: &State, proof: &Shown) -> bool {
        let now = nonce(e, state.ends[usize::from(e)].attempts - 1);
        proof.maker == Some(1 - e) && proof.met == now
    }
}

impl Model for Meeting {
    type State = State;
    type Action = (u8, Step);

    fn init_states(&self) -> Vec<State> {
        let end = End { stage: Stage::Idle, attempts: 0, counts: false };
        vec![State { ends: [end; 2], shown: Vec::new() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<(u8, Step)>) {
        for e in (0..2u8).filter(|e| self.inside[usize::from(*e)]) {
            let end = state.ends[usize::from(e)];
            match end.stage {
                Stage::Idle if end.attempts < ATTEMPTS => actions.push((e, Step::Draw)),
                Stage::Idle | Stage::Agreed(_) => {}
                Stage::Drawn => {
                    let drawn = nonce(e, end.attempts - 1);
                    let written = self.is_broken(Broken::OwnNonceFromChannel);
                    for own in Self::nonces(state).filter(|own| *own == drawn || written) {
                        for other in Self::nonces(state) {
                            actions.extend([0, 1].map(|side| (e, Step::Meet { side, own, other })));
                        }
                    }
                }
                Stage::Met { expected, showed, .. } => {
                    if !showed {
                        actions.push((e, Step::Show));
                    }
                    if !end.counts && self.is_broken(Broken::CountsFirst) {
                        actions.push((e, Step::ShowCounts));
                    }
                    actions.extend(state.shown.iter().map(|shown| (e, Step::Look(*shown))));
                    // What nobody showed: a guess that is wrong, unless anybody can make it.
                    let guess =
                        if self.is_broken(Broken::HashUnkeyed) { expected } else { wrong() };
                    actions.push((e, Step::Look(Shown { term: guess, maker: None, met: FOREIGN })));
                }
                Stage::Proved(_) if !end.counts => actions.push((e, Step::ShowCounts)),
                Stage::Proved(_) => actions.push((e, Step::Agree)),
            }
        }
    }

    fn next_state(&self, before: &State, (e, step): (u8, Step)) -> Option<State> {
        let mut state = before.clone();
        let end = &mut state.ends[usize::from(e)];
        match (step, end.stage) {
            (Step::Draw, _) => {
                *end = End { stage: Stage::Drawn, attempts: end.attempts + 1, counts: false }
            }
            (Step::Meet { side, own, other }, _) => {
                let term = |shower| self.term(e, side, own, other, shower);
                end.stage =
                    Stage::Met { own: term(side), expected: term(1 - side), other, showed: false };
            }
            (Step::Show, Stage::Met { own, expected, other, .. }) => {
                end.stage = Stage::Met { own, expected, other, showed: true };
                state.shown.push(Shown { term: own, maker: Some(e), met: other });
                state.shown.sort_unstable();
                state.shown.dedup();
            }
            (Step::Look(proof), Stage::Met { expected, .. }) => {
                let right = proof.term == expected || self.is_broken(Broken::ProofUnchecked);
                end.stage = if right { Stage::Proved(proof) } else { Stage::Idle };
            }
            (Step::ShowCounts, _) => end.counts = true,
            (Step::Agree, Stage::Proved(proof)) => end.stage = Stage::Agreed(proof),
            _ => return None,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                "1: an end agrees only with the true other end, in this meeting",
                |_, s: &State| {
                    (0..2).all(|e| match s.ends[usize::from(e)].stage {
                        Stage::Agreed(proof) => Meeting::is_true(e, s, &proof),
                        _ => true,
                    })
                },
            ),
            Property::always("2: no count is shown before the proof was right", |_, s: &State| {
                (0..2).all(|e| match s.ends[usize::from(e)] {
                    End {
                        stage: Stage::Proved(proof) | Stage::Agreed(proof),
                        counts: true,
                        ..
                    } => Meeting::is_true(e, s, &proof),
                    End { counts, stage, .. } => !counts || stage == Stage::Idle,
                })
            }),
        ];
        if self.inside == [true; 2] {
            let both = |_: &Self, s: &State| {
                s.ends.iter().all(|end| matches!(end.stage, Stage::Agreed(_)))
            };
            properties.push(Property::sometimes("3: two true ends can agree", both));
        }
        properties
    }
}

/// A term that no end expects.
fn wrong() -> Term {
    Term { first: u8::MAX, nonces: [u8::MAX; 2], shower: u8::MAX }
}

const ALONE: Meeting = Meeting { inside: [true, false], broken: None };
const BOTH: Meeting = Meeting { inside: [true, true], broken: None };

/// Leaves a rule out: some run must now break this property.
fn needs(rule: Broken, property: &str, rules: Meeting) {
    let rules = Meeting { broken: Some(rule), ..rules };
    let names = rules.properties().into_iter().map(|property| property.name);
    let wanted = names.filter(|name| name.starts_with(property)).collect();
    let checker =
        rules.checker().threads(1).finish_when(HasDiscoveries::AnyOf(wanted)).spawn_bfs().join();
    let broken = checker.discoveries().into_iter().find(|(name, _)| name.starts_with(property));
    let Some((name, path)) = broken else {
        panic!("{rule:?}: no run breaks {property} in {} states", checker.unique_state_count());
    };
    println!("{rule:?} breaks {name}: {:?}", path.into_actions());
}

#[test]
fn strangers_are_never_believed() {
    for (name, rules) in [("one end", ALONE), ("both ends", BOTH)] {
        let checker = rules.checker().threads(1).spawn_bfs().join();
        println!("{name}: {} states", checker.unique_state_count());
        checker.assert_properties();
    }
}

#[test]
fn each_rule_is_needed() {
    needs(Broken::ProofUnchecked, "1", ALONE);
    needs(Broken::HashUnkeyed, "1", ALONE);
    needs(Broken::SideUnhashed, "1", ALONE);
    needs(Broken::CountsFirst, "2", ALONE);
    needs(Broken::NoncesUnhashed, "1", BOTH);
    needs(Broken::NonceKept, "1", BOTH);
    needs(Broken::OwnNonceFromChannel, "1", BOTH);
}
