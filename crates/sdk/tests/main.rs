//! Named objects between real processes. Each test is a process of its own, with a directory of its
//! own, and with roles that are further processes ([`stage`]); docs/tests.md says what each proves.

mod attacks;
mod barrier;
mod barrier_model;
mod between;
#[path = "between/deaths.rs"]
mod between_deaths;
mod callers;
mod deaths;
mod event;
mod floods;
mod forks;
mod full;
mod hostile;
mod lane_pages_model;
mod lanes;
mod limits;
mod lost;
mod memory;
mod model;
mod mutex;
mod newcomer;
mod queue;
mod queue_model;
mod quick_model;
mod rwlock;
mod rwlock_model;
#[path = "between/scenes.rs"]
mod scenes;
mod semaphore;
mod sleepers_model;
mod stage;
mod stream_model;
mod streams;
mod users;
