//! Steps that ask what is ready, or change what a set is to tell.

use super::{Generator, Owner, Registration};

impl Generator {
    pub(super) fn wait_on(&mut self, set: u64, ms: u64) -> String {
        let small = if self.tight { 10 } else { 0 };
        let count = self.random.weigh(&[(3 * small, 1), (small, 2), (small, 3), (50, 16)]);
        let how = if self.random.chance(10) { "pwait" } else { "wait" };
        format!("{how} {set} {count} {ms}")
    }

    pub(super) fn wait(&mut self) -> Option<()> {
        let (set, owner) = self.random.pick(&self.sets.clone())?;
        let ms = self.random.weigh(&[(8, 0), (2, 2)]);
        let step = self.wait_on(set, ms);
        self.line(owner, &step);
        Some(())
    }

    /// The descriptors of one process, with what is asked of each.
    pub(super) fn asked(&mut self, of: &[(u64, &'static str)]) -> Option<(Owner, String)> {
        let owner = self.any(|_| true)?.owner;
        let mut slots: Vec<u64> =
            self.ends.iter().filter(|e| e.owner == owner).map(|e| e.slot).collect();
        slots.extend(self.sets.iter().filter(|s| s.1 == owner).map(|s| s.0));
        let mut text = String::new();
        for slot in slots.into_iter().take(12) {
            if self.random.chance(60) {
                text += &format!(" {slot}:{}", self.random.weigh(of));
            }
        }
        Some((owner, text))
    }

    pub(super) fn poll(&mut self) -> Option<()> {
        let (owner, asked) = self.asked(&[
            (4, "IN"),
            (4, "IN|OUT|RDHUP"),
            (2, "OUT"),
            (1, "RDHUP"),
            (1, "IN|PRI"),
            (1, "-"),
        ])?;
        let how = self.random.pick(&["poll", "ppoll"])?;
        let ms = self.random.weigh(&[(4, 0), (1, 2)]);
        self.line(owner, &format!("{how} {ms}{asked}"));
        Some(())
    }

    pub(super) fn select(&mut self) -> Option<()> {
        let (owner, asked) = self.asked(&[(4, "r"), (3, "rw"), (1, "w"), (2, "rwx")])?;
        let ms = self.random.weigh(&[(4, 0), (1, 2)]);
        self.line(owner, &format!("select {ms}{asked}"));
        Some(())
    }

    pub(super) fn modify(&mut self) -> Option<()> {
        let Registration { set, slot, owner } = self.random.pick(&self.registered.clone())?;
        let only_in = self.sets.iter().any(|s| s.0 == slot);
        let (events, data) = (self.events(only_in, false), self.data(slot));
        self.line(owner, &format!("mod {set} {slot} {events} {data}"));
        Some(())
    }

    pub(super) fn delete(&mut self) -> Option<()> {
        let Registration { set, slot, owner } = self.random.pick(&self.registered.clone())?;
        self.line(owner, &format!("del {set} {slot}"));
        Some(())
    }

    pub(super) fn register(&mut self) -> Option<()> {
        let (set, owner) = self.random.pick(&self.sets.clone())?;
        let end = self.any(|end| end.owner == owner)?;
        self.add(owner, set, end.slot, !end.writes);
        Some(())
    }
}
