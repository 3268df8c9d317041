use super::*;

/// A slot is made of atomics, and zeroes are valid.
fn slot() -> Box<Slot> {
    // SAFETY: as above.
    unsafe { Box::new(std::mem::zeroed()) }
}

#[test]
fn what_is_kept_is_what_was_there() {
    let slot = slot();
    assert_eq!(kept(&slot).0, Stand::Program);
    for values in [[0, 7200, 75, 9, 0], [1, 1, 1, 1, 1], LARGEST] {
        for stand in [Stand::Probing, Stand::Resting] {
            keep(&slot, stand, values);
            assert_eq!(kept(&slot), (stand, values));
        }
    }
    keep(&slot, Stand::Program, LARGEST);
    assert_eq!(kept(&slot).0, Stand::Program);
}

#[test]
fn silence_alone_is_no_cut() {
    let path = |retransmits, probes, silent| Path { retransmits, probes, silent }.is_cut();
    assert!(!path(0, 0, 1_000_000) && !path(0, 2, 5000) && !path(0, 3, 2000) && !path(5, 0, 2000));
    assert!(path(0, 3, 3000) && path(2, 0, 3000));
}
