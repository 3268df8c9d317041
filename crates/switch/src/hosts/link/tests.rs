use super::*;
use crate::hosts::pair::{End, pair};
use crate::wire::{HEADER, LONGEST};

fn links(secret: bool) -> ([Link; 2], Instant) {
    let now = Instant::now();
    let [one, two] = pair().expect("a pair");
    let [a, b] = [1, 2].map(|n| secret.then_some([n; 32]));
    let new = |end: End, ours, theirs, proven| {
        Link::new(Box::new(end), Keys { ours, theirs }, proven, now)
    };
    ([new(one, a, b, true), new(two, b, a, false)], now)
}

fn frame(len: usize) -> Vec<u8> {
    vec![7; HEADER + len]
}

/// Frames of the next message, and how many bytes each has.
fn frames(link: &mut Link, now: Instant) -> Vec<usize> {
    let Some(came) = link.receive().expect("there") else { return Vec::new() };
    let lens = match link.open(came, now).expect("good") {
        Message::Frames(frames) => frames.map(|(_, front)| front.len() - HEADER).collect(),
        Message::Alive(_) => vec![],
    };
    link.done(came).expect("there");
    lens
}

#[test]
fn frames_go_together_as_far_as_they_fit_and_none_is_lost() {
    for secret in [false, true] {
        let ([mut a, mut b], now) = links(secret);
        let put =
            |a: &mut Link, len| a.put(3, &frame(len), &Slices::new(), None) == Ok(Put::Copied);
        assert!(put(&mut a, 4000) && put(&mut a, 61) && put(&mut a, LONGEST));
        a.flush(now, false).expect("sent");
        assert_eq!(frames(&mut b, now), [4000, 61]);
        assert_eq!(frames(&mut b, now), [LONGEST]);
        // A host that takes nothing: all that can be on its way is, and then no more is taken.
        let mut count = 0;
        while put(&mut a, 60000) {
            a.flush(now, false).expect("sent");
            count += 1;
            assert!(count < 100);
        }
        assert!(count > 4);
        let mut got = 0;
        for _ in 0..count {
            got += frames(&mut b, now).len();
            a.flush(now, false).expect("sent");
        }
        assert_eq!((got, put(&mut a, 60)), (count, true));
    }
}

#[test]
fn what_is_begun_waits_a_turn_for_more_and_no_longer() {
    let ([mut a, mut b], now) = links(false);
    let put =
        |a: &mut Link| assert_eq!(a.put(3, &frame(60), &Slices::new(), None), Ok(Put::Copied));
    put(&mut a);
    for _ in 0..2 {
        a.flush(now, true).expect("left");
        put(&mut a);
        assert!(frames(&mut b, now).is_empty());
    }
    a.flush(now, true).expect("sent");
    assert_eq!(frames(&mut b, now), [60; 3]);
    // What begins anew waits anew, and goes where there is no more.
    put(&mut a);
    a.flush(now, true).expect("left");
    assert!(frames(&mut b, now).is_empty());
    a.flush(now, false).expect("sent");
    assert_eq!(frames(&mut b, now), [60]);
}

#[test]
fn who_says_nothing_is_lost_and_who_lives_says_so() {
    let ([mut a, mut b], now) = links(true);
    let at = |millis| now + Duration::from_millis(millis);
    // Who has proved nothing is told nothing.
    b.keep(now, &[1]).expect("kept");
    assert!(a.receive().expect("there").is_none());
    a.keep(now, &[1, 2]).expect("kept");
    a.keep(at(500), &[1, 2]).expect("kept");
    let came = b.receive().expect("there").expect("it came");
    let Ok(Message::Alive(keys)) = b.open(came, at(500)) else { panic!("alive") };
    assert_eq!(keys.iter().collect::<Vec<_>>(), [1, 2]);
    assert!(b.proven && b.receive().expect("there").is_none(), "once a second");
    b.keep(at(600), &[1]).expect("kept");
    let came = a.receive().expect("there").expect("it came");
    assert!(matches!(a.open(came, at(600)), Ok(Message::Alive(_))));
    a.keep(at(4000), &[]).expect("kept");
    assert!(a.keep(at(4200), &[]).is_err_and(|lost| lost.0.contains("nothing was heard")));
    let ([_a, mut b], now) = links(true);
    let late = b.keep(now + Duration::from_secs(4), &[]);
    assert!(late.is_err_and(|lost| lost.0.contains("did not show")));
}
