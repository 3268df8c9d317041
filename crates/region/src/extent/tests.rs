use super::*;
use crate::Config;

fn segment() -> (Segment, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("ginnel-extent-{:x}", sys::random_u64()));
    let segment =
        Segment::create(&path, &Config { size: 16 << 20, ..Config::default() }).expect("create");
    (segment, path)
}

#[test]
fn memory_is_asked_for_once_where_nobody_touched_the_pages() {
    let (segment, path) = segment();
    let owner = Owner::new(3, Use::Channel);
    let claim = || {
        let mut asked = None;
        let extent =
            segment.claim_if(3, owner, |bytes| asked.replace(bytes).is_none()).expect("three");
        (extent, asked)
    };
    let (first, asked) = claim();
    assert_eq!(asked, Some(3 * PAGE), "nobody has touched them");
    for page in first.page..first.page + 3 {
        assert!(segment.owner(page).is_some());
    }
    assert_eq!(segment.untouched(first), 0, "they are real now");
    // A run of which a part was touched by somebody else.
    let next = Extent { page: first.page + 3, pages: 3 };
    // SAFETY: a byte of the map, which nobody else has.
    unsafe { segment.base().add(next.offset() as usize + PAGE as usize).write_volatile(1) };
    assert_eq!(segment.untouched(next), 2 * PAGE);
    // Without its file nothing is known, and all of it counts.
    std::fs::remove_file(&path).expect("ours");
    assert_eq!(segment.untouched(first), 3 * PAGE);
    let refused = segment.claim_if(1, owner, |_| false);
    assert!(matches!(refused, Err(Error::Limited)));
}

#[test]
fn pages_are_claimed_once_and_come_back() {
    let (segment, path) = segment();
    let (free, all) = segment.page_counts();
    assert_eq!(free, all);
    let owner = Owner::new(3, Use::Channel);
    let seen = segment.claim_head(owner).expect("one page");
    let head = seen.page();
    let of_group = Owner { kind: Use::Ring, tag: Some(head), ..owner };
    let ring = segment.claim(8, of_group).expect("eight");
    assert_eq!(segment.page_counts().0, all - 9);
    assert!(ring.page > head || ring.page + 8 <= head);
    assert_eq!(segment.owner(ring.page + 7), Some(of_group));
    assert_eq!(segment.head(ring.page), None);
    assert!(segment.head(head) == Some(seen) && seen.is_busy() && !seen.was_made());
    let ready = segment.settle(seen).expect("nobody took it");
    assert!(segment.head(head) == Some(ready) && !ready.is_busy() && ready.was_made());
    assert!(segment.settle(seen).is_none() && segment.settle(ready).is_none());
    segment.release_orphan(ring.page);
    assert_eq!(segment.owner(ring.page), Some(of_group), "it has a head");
    let taken = segment.take(ready).expect("taken");
    assert!(
        taken.is_busy() && taken.was_made() && taken.owner() == Owner { tag: Some(head), ..owner }
    );
    assert!(!segment.release_head(ready));
    assert_eq!(segment.release_groups(&[seen]), 0, "the page is no longer what was seen");
    assert_eq!(segment.release_groups(&[taken]), 9);
    assert_eq!(segment.page_counts().0, all);
    let left = segment.claim(1, of_group).expect("one");
    segment.release_orphan(left.page);
    assert_eq!(segment.page_counts().0, all, "nobody heads it any more");
    std::fs::remove_file(path).expect("remove");
}

#[test]
fn a_full_segment_says_so_and_recovers() {
    let (segment, path) = segment();
    let all = segment.page_counts().1;
    let whole = segment.claim(all, Owner::new(0, Use::Ring)).expect("all of it");
    assert_eq!(segment.claim(1, Owner::new(0, Use::Ring)), Err(Error::Full));
    segment.release_if_tagged(whole.page, whole.pages, whole.page);
    assert!(segment.claim(1, Owner::new(0, Use::Ring)).is_ok());
    assert_eq!(
        segment.claim(all, Owner::new(0, Use::Ring)),
        Err(Error::Full),
        "one page is missing"
    );
    assert_eq!(segment.page_counts().0, all - 1, "a failed claim leaves nothing behind");
    std::fs::remove_file(path).expect("remove");
}

#[test]
fn racing_claims_never_overlap() {
    let (segment, path) = segment();
    let segment = &segment;
    std::thread::scope(|scope| {
        for member in 0..4u16 {
            scope.spawn(move || {
                for round in 0..2000u32 {
                    let extent =
                        segment.claim(1 + round % 7, Owner::new(member, Use::Ring)).expect("claim");
                    for page in extent.page..extent.page + extent.pages {
                        assert_eq!(segment.owner(page).map(|owner| owner.member), Some(member));
                    }
                    segment.release_if_tagged(extent.page, extent.pages, extent.page);
                }
            });
        }
    });
    let (free, all) = segment.page_counts();
    assert_eq!(free, all);
    std::fs::remove_file(path).expect("remove");
}
