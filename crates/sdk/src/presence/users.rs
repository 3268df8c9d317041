//! Who uses which object, for `ginnel ls`.

use super::{MOST_USES, NAME, Presence, USED, USES, party_of, use_word};
use ginnel_region::{Entry, Head};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// Processes that live, as they say themselves: (process number, program).
type Process = (u32, String);

/// The processes that use each object.
pub(crate) struct Users(HashMap<u64, Vec<Process>>);

impl Users {
    /// Those that use the object of an entry.
    pub fn of(&self, entry: &Entry) -> &[Process] {
        self.0.get(&use_word(entry.index, entry.generation)).map_or(&[], Vec::as_slice)
    }
}

impl Presence {
    /// Looks at every party once, however many objects there are: both can be as many as a hostile
    /// process likes.
    pub fn users(&self) -> Users {
        let mut users: HashMap<u64, Vec<Process>> = HashMap::new();
        for (head, _) in self.parties().filter(|&(_, lives)| lives) {
            let words = (0..MOST_USES).map(|at| self.page_word(head, USES + at * 8));
            let words = words.map(|word| word.load(Ordering::Acquire));
            let words: HashSet<u64> = words.filter(|word| word & USED != 0).collect();
            if words.is_empty() {
                continue;
            }
            let process = (self.pid_of(party_of(head)), self.program_of(head));
            for word in words {
                users.entry(word).or_default().push(process.clone());
            }
        }
        Users(users)
    }

    fn program_of(&self, head: Head) -> String {
        let words = [NAME, NAME + 8].map(|at| self.page_word(head, at).load(Ordering::Relaxed));
        let bytes = words.into_iter().flat_map(u64::to_le_bytes).take_while(|&byte| byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }
}
