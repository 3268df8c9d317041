//! What a party does next, one access at a time.

use super::{Kind, PARTIES, Party, Sleepers, State, Then, Without, Word};

impl Sleepers {
    pub(super) fn is_dead(state: &State, party: usize) -> bool {
        state.parties[party] == Party::Dead || state.lost[party]
    }

    /// It has a word now.
    pub(super) fn has(
        &self,
        state: &mut State,
        at: usize,
        word: usize,
        asked: bool,
        rest: usize,
    ) -> Party {
        state.words[word] = if self.0 == Kind::Event { Word::Absent } else { Word::Had(at) };
        if asked { Party::TakesBack(word, rest) } else { Party::Holds(word) }
    }

    /// Looks at a word: it is free; there is another; `None`: there is none.
    pub(super) fn takes(state: &State, word: usize) -> Option<bool> {
        if state.words[word] == Word::Free {
            return Some(true);
        }
        (word + 1 < state.words.len()).then_some(false)
    }

    pub(super) fn holds(&self, state: &mut State, at: usize, word: usize) -> Party {
        // Asked after it was taken: one that was taken for dead goes not in.
        if state.lost[at] {
            return self.gives_back(state, at, word);
        }
        if self.0 == Kind::Mutex && state.half.1 && !state.half.0 {
            state.wrong = Some("nobody knows that it is half changed");
        }
        Party::Holds(word)
    }

    pub(super) fn gives_back(&self, state: &mut State, at: usize, word: usize) -> Party {
        if self.0 == Kind::Event {
            return Party::Over;
        }
        if state.words[word] != Word::Had(at) && self.1 != Without::OwnOnly {
            return Party::Over;
        }
        let another = |other: &usize| {
            *other != at && !state.lost[*other] && state.parties[*other] == Party::Holds(word)
        };
        if (0..PARTIES).any(|other| another(&other)) {
            state.wrong = Some("what another has is free");
        }
        state.words[word] = Word::Free;
        Party::Tells(1, Then::Over)
    }

    #[allow(clippy::too_many_lines, reason = "every step of every party")]
    pub(super) fn step(&self, state: &mut State, at: usize) {
        state.parties[at] = match state.parties[at] {
            Party::Takes { at: word, asked, looks } => match Self::takes(state, word) {
                Some(true) => self.has(state, at, word, asked, 0),
                Some(false) => Party::Takes { at: word + 1, asked, looks },
                None if !looks => Party::Asks,
                None if self.0 == Kind::Event => Party::Sleeps,
                None => Party::LooksForDead { at: 0, freed: 0 },
            },
            Party::Asks => {
                (state.rung[at], state.places[at]) = (false, true);
                Party::SetsBit
            }
            Party::SetsBit => {
                state.bits |= 1 << at;
                state.sleeping[at] = true;
                match self.1 {
                    Without::Looking => Party::Sleeps,
                    _ => Party::Takes { at: 0, asked: true, looks: true },
                }
            }
            Party::LooksForDead { at: word, mut freed } => {
                if let Word::Had(had) = state.words[word]
                    && had != at
                    && Self::is_dead(state, had)
                {
                    if self.0 == Kind::Mutex {
                        state.half.0 |= self.1 != Without::Telling;
                        state.words[word] = Word::Had(at);
                        state.parties[at] = Party::TakesBack(word, 0);
                        return;
                    }
                    state.words[word] = Word::Free;
                    freed += 1;
                }
                match (word + 1 < state.words.len(), self.0) {
                    (true, _) => Party::LooksForDead { at: word + 1, freed },
                    (_, Kind::Mutex) => Party::Sleeps,
                    _ => Party::TakesAfter { at: 0, freed },
                }
            }
            Party::TakesAfter { at: word, freed } => match Self::takes(state, word) {
                Some(true) => {
                    let rest =
                        if self.1 == Without::TellingAll { 0 } else { freed.saturating_sub(1) };
                    self.has(state, at, word, true, rest)
                }
                Some(false) => Party::TakesAfter { at: word + 1, freed },
                // It told as many as it made free, which others have by now.
                None => Party::Sleeps,
            },
            Party::Sleeps if state.rung[at] => {
                (state.rung[at], state.sleeping[at]) = (false, false);
                Party::Takes { at: 0, asked: true, looks: false }
            }
            Party::Sleeps => Party::Sleeps,
            Party::GivesUp => {
                state.sleeping[at] = false;
                let claimed = !std::mem::take(&mut state.places[at]);
                if claimed && self.1 != Without::PassingOn {
                    Party::Tells(1, Then::Over)
                } else {
                    Party::Over
                }
            }
            Party::TakesBack(word, rest) => {
                state.sleeping[at] = false;
                let claimed = !std::mem::take(&mut state.places[at]);
                let pass_on = usize::from(claimed && self.1 != Without::PassingOn);
                match rest + pass_on {
                    0 => self.holds(state, at, word),
                    most => Party::Tells(most, Then::Holds(word)),
                }
            }
            Party::Holds(word) => self.gives_back(state, at, word),
            Party::Tells(most, then) => Party::Wakes { bits: state.bits, most, then },
            Party::Wakes { bits, most, then } if bits == 0 || most == 0 => match then {
                Then::Holds(word) => self.holds(state, at, word),
                Then::Over => {
                    state.owed &= self.0 != Kind::Event;
                    Party::Over
                }
            },
            Party::Wakes { bits, most, then } => {
                let other = bits.trailing_zeros() as usize;
                state.bits &= !(1 << other);
                let slept = std::mem::take(&mut state.places[other]) && {
                    state.rung[other] = true;
                    state.sleeping[other] && state.parties[other] != Party::Dead
                };
                Party::Wakes { bits: bits & (bits - 1), most: most - usize::from(slept), then }
            }
            Party::Sets => {
                let was = std::mem::replace(&mut state.words[0], Word::Free);
                if was == Word::Free && self.1 == Without::WakingAgain {
                    state.owed = false;
                    Party::Over
                } else {
                    Party::Tells(1, Then::Over)
                }
            }
            Party::Over => Party::Over,
            Party::Dead => Party::Dead,
        };
    }

    pub(super) fn kill(&self, state: &mut State, at: usize) {
        let party = std::mem::replace(&mut state.parties[at], Party::Dead);
        state.deaths += 1;
        state.half.1 |= state.words.contains(&Word::Had(at)) && self.0 == Kind::Mutex;
        // Between a change and the end of its waking; or it was woken, and tells nobody.
        let telling = matches!(
            party,
            Party::Tells(..)
                | Party::Wakes { .. }
                | Party::LooksForDead { .. }
                | Party::TakesAfter { .. }
                | Party::GivesUp
        );
        state.owed |= telling || state.rung[at] || !state.places[at] && party == Party::Sleeps;
        let asked = matches!(party, Party::Takes { asked: true, .. } | Party::TakesBack(..));
        state.owed |= asked && (self.0 != Kind::Event || !state.places[at]);
    }

    /// May one that sleeps look by itself?
    pub(super) fn looks_by_itself(&self, state: &State) -> bool {
        let dead = |word: &Word| matches!(word, Word::Had(had) if Self::is_dead(state, *had));
        state.owed && self.0 != Kind::Event || state.words.iter().any(dead)
    }

    /// Nobody does anything any more, or for as long as it likes.
    pub(super) fn is_quiet(state: &State) -> bool {
        let quiet = |(at, party): (usize, &Party)| match party {
            Party::Over | Party::Dead | Party::Holds(_) => true,
            Party::Sleeps => !state.rung[at],
            _ => false,
        };
        state.parties.iter().enumerate().all(quiet)
    }
}
