//! Steps that move bytes.

use super::{End, Generator};

impl Generator {
    pub(super) fn write(&mut self) -> Option<()> {
        let end = self.any(|end| end.writes)?;
        let step = self.write_to(end);
        self.line(end.owner, &step);
        Some(())
    }

    pub(super) fn write_to(&mut self, end: End) -> String {
        let length = self.random.weigh(&[(6, 1), (4, 100), (2, 700), (1, 1900)]);
        let how = match end.socket {
            true => self.random.weigh(&[
                (5, "write"),
                (4, "send"),
                (2, "writev"),
                (2, "sendmsg"),
                (1, "sendfile"),
            ]),
            false => "write",
        };
        let urgent = end.socket && self.random.chance(1);
        match (urgent, how) {
            (true, _) => format!("send {} 1 OOB", end.slot),
            (_, "send" | "sendmsg") => format!("{how} {} {length} DONTWAIT", end.slot),
            _ => format!("{how} {} {length}", end.slot),
        }
    }

    pub(super) fn read(&mut self) -> Option<()> {
        let end = self.any(|end| end.reads && !end.listens)?;
        let step = self.read_from(end);
        self.line(end.owner, &step);
        Some(())
    }

    pub(super) fn read_from(&mut self, end: End) -> String {
        let length = self.random.weigh(&[(4, 1), (4, 60), (4, 4000)]);
        let how = match end.socket {
            true => self.random.weigh(&[(4, "read"), (6, "recv"), (1, "readv"), (2, "recvmsg")]),
            false => "read",
        };
        let flags = [
            (12, "DONTWAIT"),
            (4, "DONTWAIT|PEEK"),
            (2, "WAITALL"),
            (1, "WAITALL|PEEK"),
            (1, "DONTWAIT|TRUNC"),
            (2, "-"),
        ];
        match how {
            "recv" | "recvmsg" => {
                format!("{how} {} {length} {}", end.slot, self.random.weigh(&flags))
            }
            _ => format!("{how} {} {length}", end.slot),
        }
    }

    pub(super) fn drain(&mut self) -> Option<()> {
        let end = self.any(|end| end.reads && !end.listens)?;
        self.line(end.owner, &format!("drain {}", end.slot));
        Some(())
    }

    pub(super) fn fill(&mut self) -> Option<()> {
        let fills = self.fills;
        let end = self.any(|end| end.writes && fills)?;
        self.line(end.owner, &format!("fill {}", end.slot));
        Some(())
    }
}
