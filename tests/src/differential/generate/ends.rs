//! Steps that end, duplicate and set descriptors, and new connections.

use super::{End, Generator};

impl Generator {
    pub(super) fn shut(&mut self) -> Option<()> {
        let end = self.any(|end| end.socket)?;
        let way = self.random.weigh(&[(4, "WR"), (1, "RD"), (2, "RDWR")]);
        self.line(end.owner, &format!("shut {} {way}", end.slot));
        Some(())
    }

    pub(super) fn close(&mut self) -> Option<()> {
        let end = self.any(|end| !end.listens).filter(|end| self.receives != Some(end.slot))?;
        if end.socket && self.random.chance(25) {
            self.line(end.owner, &format!("opt {} LINGER 0", end.slot));
        }
        self.line(end.owner, &format!("close {}", end.slot));
        // Most scripts leave alone what is closed; some go on using the number.
        if self.random.chance(90) {
            self.ends.retain(|e| e.slot != end.slot);
        }
        Some(())
    }

    pub(super) fn duplicate(&mut self) -> Option<()> {
        let end = self.any(|end| !end.listens)?;
        if self.random.chance(15) {
            let owner = end.owner;
            let at = self.any(|e| e.owner == owner && e.slot != end.slot && !e.listens)?;
            self.line(owner, &format!("dup2 {} {}", end.slot, at.slot));
            self.ends.retain(|e| e.slot != at.slot);
            self.ends.push(End { slot: at.slot, ..end });
            return Some(());
        }
        let at = self.slot();
        self.line(end.owner, &format!("dup {} {at}", end.slot));
        self.ends.push(End { slot: at, ..end });
        Some(())
    }

    pub(super) fn ask(&mut self) -> Option<()> {
        let end = self.any(|end| end.socket)?;
        let what = self.random.weigh(&[(3, "error"), (3, "inq"), (1, "outq")]);
        self.line(end.owner, &format!("{what} {}", end.slot));
        Some(())
    }

    pub(super) fn option(&mut self) -> Option<()> {
        let end = self.any(|end| end.socket)?;
        let options = [
            (3, "NONBLOCK 1"),
            (1, "NONBLOCK 0"),
            (2, "RCVLOWAT 10"),
            (1, "RCVLOWAT 1"),
            (1, "RCVTIMEO 5"),
            (1, "KEEPALIVE 1"),
            (1, "OOBINLINE 1"),
        ];
        let option = self.random.weigh(&options);
        self.line(end.owner, &format!("opt {} {option}", end.slot));
        Some(())
    }

    /// A new connection, taken at once or later.
    pub(super) fn come(&mut self) -> Option<()> {
        let listener = self.any(|end| end.listens)?;
        let slot = self.slot();
        if self.random.chance(60) {
            self.line(listener.owner, &format!("connect {slot} {}", listener.slot));
        } else {
            self.line(listener.owner, &format!("accept {slot} {}", listener.slot));
        }
        self.ends.push(End {
            slot,
            reads: true,
            writes: true,
            socket: true,
            listens: false,
            ..listener
        });
        Some(())
    }
}
