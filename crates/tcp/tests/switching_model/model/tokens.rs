//! Words that ask for a wake-up, and the tokens that are one.

use super::Run;
use crate::switching_model::state::*;

impl Run<'_> {
    pub(super) fn send_lock_is_free(&mut self) -> bool {
        !matches!(
            self.end().writing,
            Writing::Published
                | Writing::Unrung
                | Writing::Upgrading
                | Writing::Upgraded
                | Writing::Downgrading { .. }
                | Writing::Ending
        )
    }

    /// Tokens can be sent in this direction: it is in ring phase and open.
    pub(super) fn carries_tokens(direction: &Direction) -> bool {
        direction.epoch % 2 == 1 && direction.eof == NO_EOF && !direction.shut
    }

    pub(super) fn send_token(&mut self) -> Option<()> {
        let may = self.send_lock_is_free() && self.has_room() && !self.end().reset;
        (may && self.out().owed > 0).then(|| {
            self.out().owed -= 1;
            self.out().sent += 1;
            self.send(Item::Token);
        })
    }

    /// Puts `word` into `want_data`, and notes how many tokens were sent since it was last set.
    pub(super) fn set_want_data(&mut self, word: Word) {
        let old = std::mem::replace(&mut self.inc().want_data, word);
        let promised = if let Word::Promised(count) = old { count.cast_signed() } else { 0 };
        let claimed = self.end().armed_data && (old == Word::None || promised > 0);
        self.end().to_come += i8::from(claimed) + promised;
        self.end().armed_data = word == Word::Token;
    }

    /// Puts `word` into `want_space`, and notes whether the last arming was claimed.
    pub(super) fn set_want_space(&mut self, word: Word) {
        let old = std::mem::replace(&mut self.out().want_space, word);
        let claimed = self.end().armed_space && old == Word::None;
        self.end().to_come += i8::from(claimed);
        self.end().armed_space = word == Word::Token;
    }

    /// Claims what the reader of our direction armed.
    pub(super) fn claim_want_data(&mut self) {
        if self.out().want_data == Word::Token {
            self.out().want_data = Word::None;
            self.out().owed += 1;
        }
    }

    /// Claims what the writer of our incoming direction armed.
    pub(super) fn claim_want_space(&mut self) {
        if self.inc().want_space == Word::Token {
            self.inc().want_space = Word::None;
            self.out().owed += 1;
        }
    }
}
