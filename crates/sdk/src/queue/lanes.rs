//! Which sender has which lane of a queue.

use super::lane::Lane;
use super::layout::{Geometry, sender_at, want_space_at};
use super::pages;
use crate::object::Object;
use crate::{Error, Result};
use ginnel_region::Party;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Takes a lane that nobody has, or had who died, and that holds no nonsense: its number, its
/// pages, the next position.
pub(super) fn take_lane(object: &Object, geometry: Geometry) -> Result<(u32, Lane, u64)> {
    let party = object.presence().party();
    let mut nonsense = false;
    for number in (0..geometry.lanes).filter(|&number| claim_lane(object, number)) {
        match pages::prepare(object, geometry, number) {
            Ok(lane) => match lane.inherit_as_sender() {
                Some(next) => return Ok((number, lane, next)),
                None => nonsense = true,
            },
            Err(error) => {
                give_lane(object, number, party);
                return Err(error);
            }
        }
        give_lane(object, number, party);
    }
    if nonsense {
        return Err(object.corrupt());
    }
    let first = Party::of(object.words.word(sender_at(0)).load(Acquire));
    let (name, pid) = (object.name.clone(), first.map_or(0, |had| object.presence().pid_of(had)));
    Err(Error::InUse { name, role: "sender in each of its lanes, the first", pid })
}

fn claim_lane(object: &Object, number: u32) -> bool {
    let (presence, word) = (object.presence(), object.words.word(sender_at(number)));
    let old = word.load(Acquire);
    let claimed = !Party::of(old).is_some_and(|party| presence.lives(party))
        && word.compare_exchange(old, presence.party().bits(), AcqRel, Relaxed).is_ok();
    if claimed {
        object.words.word(want_space_at(number)).store(0, Relaxed);
    }
    claimed
}

pub(super) fn give_lane(object: &Object, number: u32, party: Party) {
    let word = object.words.word(sender_at(number));
    let _ = word.compare_exchange(party.bits(), 0, AcqRel, Relaxed);
}
