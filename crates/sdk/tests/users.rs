//! Two users in one segment: a process of the other user's that dies is dead, also while others of
//! that user live and look at nothing.

use crate::between_deaths::{self, outlives};
use crate::scenes;
use crate::stage::{Guarded, Part, Shared, become_nobody, play, until};
use ginnel::{
    Event, LockError, Mutex, Options, Queue, Receiver, Reset, Segment, Semaphore, Sender,
};
use std::time::Duration;

/// Beyond this nobody is told any more.
const LONG: Duration = Duration::from_secs(20);

fn opened(path: &str) -> Segment {
    Options::new().size(16 << 20).open(path).expect("a segment")
}

/// The parts of all tests here: one makes the segment, the others are the other user's.
fn plays(part: Part, test: impl FnOnce(&Shared)) {
    match part {
        Part::Role(role, path) => match role.as_str() {
            "makes" => drop(opened(&path)),
            "second" => {
                become_nobody();
                scenes::play(&opened(&path), false);
            }
            "holds everything" => {
                become_nobody();
                between_deaths::dies(&opened(&path));
            }
            "idle" => {
                become_nobody();
                let segment = opened(&path);
                let here = Semaphore::open_or_create(&segment, "here", 0, 1).expect("opened");
                here.add(1).expect("room");
                std::thread::sleep(3 * LONG);
            }
            _ => {
                become_nobody();
                dies(&opened(&path));
            }
        },
        Part::Test => {
            if let Some(shared) = Shared::new() {
                test(&shared);
            }
        }
    }
}

/// Has a lock, a permit, a message that it received and one that it was writing, and is killed.
fn dies(segment: &Segment) {
    let mutex = Mutex::open(segment, "lock").expect("there");
    let permits = Semaphore::open(segment, "permits").expect("there");
    let receiver = Receiver::open(segment, "theirs").expect("free");
    let sender = Sender::open(segment, "ours").expect("there");
    let loan = sender.loan(100).expect("room");
    let held = (mutex.lock().expect("free"), permits.acquire().expect("free"), receiver.recv());
    let full = Semaphore::open(segment, "full").expect("there");
    full.add(1).expect("room");
    std::thread::sleep(3 * LONG);
    drop((held, loan));
}

fn with_another(shared: &Shared) -> (Segment, Guarded) {
    let segment = opened(shared.segment().to_str().expect("UTF-8"));
    let here = Semaphore::open_or_create(&segment, "here", 0, 1).expect("opened");
    let idle = shared.theirs_plays("idle");
    here.acquire_timeout(LONG).expect("it lives").use_up();
    (segment, idle)
}

#[test]
fn anothers_dead_process_is_dead_while_his_others_live() {
    const NAME: &str = "users::anothers_dead_process_is_dead_while_his_others_live";
    play(NAME, |part| {
        plays(part, |shared| {
            let (segment, idle) = with_another(shared);
            let mutex = Mutex::create(&segment, "lock").expect("free");
            let permits = Semaphore::create(&segment, "permits", 1, 1).expect("free");
            let full = Semaphore::create(&segment, "full", 0, 1).expect("free");
            let queue = Queue::new().capacity(2).message_size(100).senders(1);
            queue.create(&segment, "theirs").expect("free");
            queue.create(&segment, "ours").expect("free");
            let sender = Sender::open(&segment, "theirs").expect("free");
            let receiver = Receiver::open(&segment, "ours").expect("free");
            sender.send(b"read by one that dies").expect("room");
            let dies = shared.theirs_plays("dies");
            full.acquire_timeout(LONG).expect("it has all").use_up();
            dies.kill();
            match mutex.lock_timeout(LONG) {
                Err(LockError::HolderDied(guard)) => guard.mark_consistent(),
                Err(LockError::Failed(why)) => panic!("nobody was told: {why}"),
                Ok(_) => panic!("nobody was told"),
            }
            drop(permits.acquire_timeout(LONG).expect("it is free again"));
            until("an end of the sender", || {
                matches!(receiver.try_recv(), Err(ginnel::Error::Ended { died: true }))
            });
            until("a place for a receiver", || Receiver::open(&segment, "theirs").is_ok());
            until("a place for a sender", || Sender::open(&segment, "ours").is_ok());
            idle.kill();
        });
    });
}

/// Neither counts the other as dead that lives, whoever looks.
#[test]
fn nobody_who_lives_is_dead_to_the_other() {
    play("users::nobody_who_lives_is_dead_to_the_other", |part| {
        plays(part, |shared| {
            let (segment, idle) = with_another(shared);
            let _uses = Semaphore::open(&segment, "here").expect("there");
            let users = |name: &str| {
                let objects = segment.objects().expect("a list").into_iter();
                let found = objects.filter(|object| object.name == name);
                found.flat_map(|object| object.users).map(|user| user.pid).collect::<Vec<_>>()
            };
            let mut seen = users("here");
            seen.sort_unstable();
            let mut both = vec![std::process::id(), idle.0.id()];
            both.sort_unstable();
            assert_eq!(seen, both);
            idle.kill();
            until("its end", || users("here").iter().all(|&pid| pid == std::process::id()));
        });
    });
}

/// Every kind of object, one end of it each user's.
#[test]
fn two_users_play_every_scene() {
    play("users::two_users_play_every_scene", |part| {
        plays(part, |shared| {
            let segment = opened(shared.segment().to_str().expect("UTF-8"));
            let second = shared.theirs_plays("second");
            scenes::play(&segment, true);
            second.ends();
        });
    });
}

/// Killed with everything in its hands, by which the other user is waiting.
#[test]
fn one_outlives_another_users_that_hold_everything() {
    const ROUNDS: u32 = 2;
    play("users::one_outlives_another_users_that_hold_everything", |part| {
        plays(part, |shared| {
            let segment = opened(shared.segment().to_str().expect("UTF-8"));
            let told = Event::create(&segment, "told", Reset::Auto).expect("free");
            std::thread::scope(|scope| {
                scope.spawn(|| outlives(&segment, ROUNDS, |_| told.set().expect("told")));
                for round in 1..=ROUNDS {
                    let dies = shared.theirs_plays("holds everything");
                    told.wait_timeout(4 * LONG).expect("it has everything");
                    // Where the waits have come to sleep, and where they have not.
                    std::thread::sleep(Duration::from_millis(if round == 1 { 0 } else { 150 }));
                    dies.kill();
                    told.wait_timeout(4 * LONG).expect("it is told");
                }
            });
        });
    });
}
