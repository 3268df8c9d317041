//! One registration's place in the order of its set: see [`super::order`].

/// What a registration's place in the order is made of.
pub struct Turn {
    /// When it was registered or changed last, ticks: nothing was ready before that.
    pub(super) since: u64,
    /// Level-triggered: when it was told of, and not found empty since. 0: it is not in the list.
    pub(super) listed: u64,
    /// Since when it was ready when it was told of last, as far as that is known here; else 0.
    pub(super) ready: u64,
    /// Its writer has said so.
    pub(super) said: bool,
    /// It was not in the list when it was told of last.
    pub(super) first: bool,
    /// Since when it is ready, where it is among those that are due; else 0.
    pub(super) due: u64,
    /// Its writer was asked to say since when it is ready.
    pub(super) asked: bool,
    /// Where it was not before: a time before which everything had come that had come then, and up
    /// to where that reaches. (0, 0): it was.
    pub(super) unsaid: (u64, u64),
    /// Where its ring ended when a wait found it empty, or when it was registered, as a
    /// [key](super::edges::key): what came first behind that has its place in the list, read or
    /// not. `u64::MAX`: not known.
    pub(super) clean: u64,
    /// The last pass in which memory said that it has nothing to tell.
    pub(super) nothing: u64,
    /// The last pass in which memory said that bytes are there, and that there is nothing else to
    /// tell; and the [key](super::edges::key) of these bytes.
    pub(super) found: (u64, u64),
    /// When a pass left it to the next, since it seemed to have come after that began, and where
    /// what was not told of began then. (0, 0): none did.
    left: (u64, u64),
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            since: 0,
            listed: 0,
            ready: 0,
            said: false,
            first: false,
            due: 0,
            asked: false,
            unsaid: (0, 0),
            clean: u64::MAX,
            nothing: 0,
            found: (0, 0),
            left: (0, 0),
        }
    }
}

impl Turn {
    /// It was registered, or changed.
    pub fn begin(&mut self, now: u64) {
        self.since = now;
    }

    /// It was told of, as number `place` of its wait.
    pub fn told(&mut self, now: u64, place: usize, stays: bool) {
        self.first = self.listed == 0;
        self.listed = if stays { now.wrapping_add(place as u64).max(1) } else { 0 };
    }

    /// The kernel told of it, perhaps what a ring told of in the same wait.
    pub fn told_by_kernel(&mut self, now: u64, stays: bool) {
        self.first = self.listed == 0;
        if self.first && stays {
            self.listed = now.max(1);
        }
    }

    /// It was ready until now, and has its place in the list until a wait finds it not ready.
    pub fn stays(&mut self) {
        if self.listed == 0 && self.due == 0 {
            self.listed = self.since.max(1);
        }
    }

    /// It is told of, and was ready since then.
    pub fn was_ready(&mut self, since: u64) {
        self.ready = since;
    }

    /// A time before which what begins at `first` had come, if that was before its writer was
    /// asked.
    pub(super) fn came_before(&self, first: u64) -> Option<u64> {
        let (time, end) = self.unsaid;
        (time != 0 && (end.wrapping_sub(first) << 12).cast_signed() > 0).then_some(time)
    }

    /// What is not told of begins at `first`, and seems to have come after a pass that began at
    /// `now`. Since when is it there, if a pass before this one found it there?
    pub(super) fn left_before(&mut self, first: u64, now: u64) -> Option<u64> {
        if self.left.1 == first && (1..now).contains(&self.left.0) {
            return Some(self.left.0);
        }
        self.left = (now, first);
        None
    }

    /// It is told of before its turn.
    pub fn has_come(&mut self) {
        self.due = 0;
    }

    /// Did memory say in this pass that it has nothing to tell?
    pub fn has_nothing(&self, pass: u64) -> bool {
        self.nothing == pass
    }

    /// Did memory say in this pass that its bytes are all that it has to tell? Their key.
    pub fn has_bytes_alone(&self, pass: u64) -> Option<u64> {
        (self.found.0 == pass).then_some(self.found.1)
    }

    /// It is not ready.
    pub fn empty(&mut self) {
        self.listed = 0;
    }

    /// It is looked at no more: what it has is the kernel's to tell, and comes when that tells it.
    pub fn give_up(&mut self) {
        // It may have another channel when it is looked at again, whose writer nobody has asked.
        (self.listed, self.due, self.asked, self.unsaid) = (0, 0, false, (0, 0));
    }

    /// It was removed. Its writer, who was asked, goes on with what it was asked for.
    pub fn end(&mut self) {
        *self = Self { asked: self.asked, unsaid: self.unsaid, ..Self::default() };
    }
}
