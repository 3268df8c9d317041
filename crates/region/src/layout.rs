//! What lies where in a segment: words and tables of the header page, and the tables behind it.

/// Bytes in a page: the unit in which memory of a segment is claimed.
pub const PAGE: u64 = 4096;

/// Where the header page has the sum of [`crate::Segment::add_carried`], bytes from the segment's
/// start: a cache line of its own.
pub(crate) const CARRIED: u64 = 128;
/// Where it has the page after the highest that was ever claimed, in a line of its own: a hint,
/// which a peer may have written.
pub(crate) const REACHED: u64 = 192;
/// Where it has the page from which on a free one is looked for, likewise. One for all peers: with
/// one each, who claims would never come back to what others free, and go through all of the
/// segment, page by page of fresh memory.
pub(crate) const HINT: u64 = 256;
/// Where it has the count of [`crate::Segment::note_tcp`] and, behind it, that of
/// [`crate::Segment::begin_tcp`], likewise.
pub(crate) const BY_TCP: u64 = 320;
pub(crate) const BEGUN: u64 = BY_TCP + 8;
/// Where it has the entries of those that began last, words.
pub(crate) const LATELY: u64 = 1024;
/// So many: up to the table of peers.
pub const LATELY_ENTRIES: u64 = (TABLE - LATELY) / 8;
/// Where it has the table of peers, bytes from the segment's start.
pub const TABLE: u64 = 2048;

/// Bytes of the rendezvous table, which begins at page 1.
pub(crate) const RENDEZVOUS_BYTES: u64 = 2 << 20;
/// Bytes of the member table, behind the rendezvous table.
pub(crate) const MEMBERS_BYTES: u64 = 64 << 10;

/// How many names a segment has room for.
pub const NAMES: u32 = 2048;
/// Bytes of a name's entry beside its word.
pub(crate) const DETAILS: u64 = 128;
/// Bytes of the table of names.
pub(crate) const NAMES_BYTES: u64 = NAMES as u64 * (8 + DETAILS);
const _: () = assert!(NAMES_BYTES.is_multiple_of(PAGE));

/// Where the member table begins.
pub(crate) const MEMBERS: u64 = PAGE + RENDEZVOUS_BYTES;
/// Where the owner words begin.
pub(crate) const OWNERS: u64 = MEMBERS + MEMBERS_BYTES;

/// End of the header and tables, whole pages: header page, rendezvous, members, one owner word a
/// page, names.
pub(crate) fn tables_end(size: u64) -> u64 {
    names_at(size) + NAMES_BYTES
}

/// Where the table of names begins.
pub(crate) fn names_at(size: u64) -> u64 {
    OWNERS + (size / PAGE * 8).next_multiple_of(PAGE)
}
