//! Connections in a segment as honest peers leave them there, made by hand.

use ginnel_ivshmem::client::Client;
use ginnel_region::{Owner, Segment, Use};
use ginnel_tcp::layout::{Channel, MAGIC};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

/// The segment that a joiner was given.
pub fn open(client: &Client) -> Segment {
    let memory = client.memory().expect("memory");
    Segment::open(format!("/proc/self/fd/{}", memory.as_raw_fd()).as_ref()).expect("a segment")
}

/// A connection between two peers that has carried so many bytes of each; gives its page.
pub fn connect(segment: &Segment, peers: [u16; 2], carried: [u64; 2]) -> u32 {
    let head = segment.claim_head(Owner::new(peers[0], Use::Channel)).expect("room");
    let page = head.page();
    segment.clear(page);
    let channel = Channel::at(segment, page);
    for (side, (&peer, &carried)) in (0..).zip(peers.iter().zip(&carried)) {
        // Its member has the peer's number here, and says so in its entry (`ginnel_node::place`).
        let life = if peer == 0 { 0 } else { segment.presence(peer).generation & 0xffff };
        segment
            .word(segment.members().0 + u64::from(peer) * 64)
            .store(life << 16 | u64::from(peer) << 8 | 2, Relaxed);
        channel.owner(side).store(u64::from(peer) << 32, Relaxed);
        channel.agreed(side).store(1, Relaxed);
        channel.direction(side).tail().store(carried, Relaxed);
    }
    channel.magic().store(MAGIC, Relaxed);
    assert!(segment.settle(head).is_some());
    page
}

/// As it is where both ends have let go.
pub fn end(segment: &Segment, page: u32) {
    segment.add_carried(Channel::at(segment, page).carried());
    let head =
        segment.head(page).and_then(|head| segment.take(head)).expect("nobody else frees it");
    segment.release_groups(&[head]);
}
