//! Exhaustive check of the publish/park handshake: `make loom`.
#![cfg(loom)]

use ginnel_ring::park::{self, Want};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

struct Shared {
    tail: AtomicU64,
    want: AtomicU64,
    woken: AtomicBool,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        tail: AtomicU64::new(0),
        want: AtomicU64::new(0),
        woken: AtomicBool::new(false),
    })
}

/// Either the sleeper sees the byte before it sleeps, or the publisher wakes it.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let s = shared();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                if park::publish(&s.tail, 1, &s.want) == Want::Token {
                    s.woken.store(true, Ordering::Release);
                }
            })
        };
        park::arm(&s.want, Want::Token);
        let saw = s.tail.load(Ordering::Acquire) == 1;
        writer.join().unwrap();
        assert!(saw || s.woken.load(Ordering::Acquire), "asleep with a byte in the ring");
    });
}

/// Two sleepers of different kinds: the word becomes a token, which wakes both.
#[test]
fn two_sleepers_are_both_woken() {
    loom::model(|| {
        let s = shared();
        let sleepers: Vec<_> = [1u32, 2]
            .into_iter()
            .map(|page| {
                let s = s.clone();
                thread::spawn(move || {
                    park::arm(&s.want, Want::Waiter { page, bit: 0 });
                    s.tail.load(Ordering::Acquire) == 1
                })
            })
            .collect();
        let claimed = park::publish(&s.tail, 1, &s.want);
        let saw: Vec<bool> = sleepers.into_iter().map(|t| t.join().unwrap()).collect();
        for (sleeper, saw) in [1u32, 2].into_iter().zip(saw) {
            let woken = claimed == Want::Token || claimed == Want::Waiter { page: sleeper, bit: 0 };
            assert!(saw || woken, "sleeper {sleeper} forgotten; claimed {claimed:?}");
        }
    });
}

/// The closer learns whether its token was claimed: exactly one of the two has it.
#[test]
fn a_token_is_claimed_once_or_taken_back() {
    loom::model(|| {
        let s = shared();
        park::arm(&s.want, Want::Token);
        let writer = {
            let s = s.clone();
            thread::spawn(move || park::publish(&s.tail, 1, &s.want))
        };
        let closed = park::close(&s.want);
        let claimed = writer.join().unwrap();
        assert!(
            (claimed == Want::Token) ^ (closed == Want::Token),
            "claimed {claimed:?}, closer found {closed:?}"
        );
    });
}
