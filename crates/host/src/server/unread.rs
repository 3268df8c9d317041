//! Those who do not read what they are sent.
//!
//! A descriptor that was sent and not received is under way. The kernel counts those of a user and
//! refuses more than RLIMIT_NOFILE (ETOOMANYREFS, unix(7)); closing the sender's end of the
//! connection does not take them back. So one who leaves them unread must not be able to make them
//! many, or nobody could join any segment:
//!
//! - each joiner has at most its window of them, a share of the limit, which the kernel keeps to
//!   (SO_SNDBUF);
//! - one who is let go, or says that it leaves, keeps its place, a slot or one of `host.processes`,
//!   until it has read them or is gone;
//! - of the refused there is a fixed number, and a smaller one of one user.
//!
//! There is no time limit: where somebody reads nothing, an end of the connection would take
//! nothing back, and leave a QEMU spinning that was stopped and goes on.

use super::joiners::{Joiner, Role};
use super::{Server, Source};
use crate::sockets;
use ginnel_daemon::log;
use ginnel_ivshmem::outbox::Outbox;
use rustix::net::Shutdown;
use rustix::process::{Resource, getrlimit};

/// How many refused joiners are kept connected. They are not closed at once: a QEMU whose server
/// closes before its device has taken the setup (the chardev may be made long before the device)
/// spins for ever with its lock held.
const MAX_REFUSED: usize = 64;
/// Of these, those of one user who have not read their setup.
const MAX_UNREAD_OF_USER: usize = 16;
/// Of the limit on descriptors under way, what is not for joiners' setups: the refused, the store,
/// and other processes of this user.
const RESERVE: u64 = 128;

/// How many messages with descriptors each of so many joiners may leave unread, so that all
/// together stay below the limit.
pub(crate) fn window(places: usize) -> usize {
    // Unlimited: the kernel counts in 32 bits.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u32::MAX.into());
    let share = limit.saturating_sub(RESERVE) / (places as u64).max(1);
    usize::try_from(share).unwrap_or(usize::MAX)
}

impl Server {
    /// Lets a joiner go: at once, if it has read all that it was sent, or is gone.
    pub(crate) fn part(&mut self, token: u64, why: &str) {
        let Some(Source::Joiner(joiner)) = self.sources.get_mut(&token) else { return };
        if sockets::has_read_all(&joiner.socket) {
            return self.leave(token, why);
        }
        let _ = rustix::net::shutdown(&joiner.socket, Shutdown::Both);
        joiner.parting = Some(why.to_owned());
        joiner.outbox = Outbox::new(0);
        if !matches!(joiner.role, Role::Refused) {
            let (segment, pid, slot) =
                (&self.segments[joiner.segment].name, joiner.who.pid, joiner.peer);
            log!(
                Info,
                "let_go",
                segment = segment,
                slot = slot,
                pid = pid,
                why = why,
                so = "its place is free once it has read its setup"
            );
        }
        self.crowded.remove(&token);
        self.parting.insert(token);
        self.deafen(token);
    }

    /// Looks who of those who were let go has read everything by now.
    pub(crate) fn part_at_last(&mut self) {
        for token in self.parting.clone() {
            let Some(Source::Joiner(joiner)) = self.sources.get(&token) else {
                self.parting.remove(&token);
                continue;
            };
            if sockets::has_read_all(&joiner.socket) {
                self.parting.remove(&token);
                let why = joiner.parting.clone().unwrap_or_default();
                self.leave(token, &why);
            }
        }
    }

    /// Makes room for one more refused joiner of this user: one who has read all that it was sent
    /// goes, whom closing cannot hurt. False where there is none, or where this user has left too
    /// many unread.
    pub(crate) fn make_room_for_refused(&mut self, uid: u32) -> bool {
        let refused = self.sources.iter().filter_map(|(token, source)| match source {
            Source::Joiner(Joiner { role: Role::Refused, socket, who, .. }) => {
                Some((*token, who.uid, sockets::has_read_all(socket)))
            }
            _ => None,
        });
        let refused: Vec<(u64, u32, bool)> = refused.collect();
        let (count, done) = (
            refused.len(),
            refused.iter().find(|(_, _, has_read)| *has_read).map(|(token, ..)| *token),
        );
        let too_many =
            refused.iter().filter(|&&(_, user, has_read)| user == uid && !has_read).count()
                >= MAX_UNREAD_OF_USER;
        if let Some(token) = done.filter(|_| count >= MAX_REFUSED) {
            self.remove(token);
        }
        !too_many && (count < MAX_REFUSED || done.is_some())
    }
}
