//! One process's presence in one segment of shared memory: who else is there, how they wake each
//! other, and what becomes of the memory of those who died. Nothing here knows of sockets:
//! `ginnel-tcp` carries TCP connections on top of it, and other libraries may build other things.
//!
//! Below are `ginnel-region`, the memory itself with its pages and their owners, `ginnel-ring`, and
//! `ginnel-ivshmem`, the messages by which one joins a segment of `ginneld`.
//!
//! ```
//! use ginnel_node::{Library, Look, Node, Reach, Rung, Settings, Waiter};
//! use ginnel_region::{Owner, Use};
//!
//! # let place = tempfile::tempdir()?;
//! # let mut settings = Settings::from_environment();
//! # settings.directory = place.path().join("own");
//! # settings.segment = settings.directory.join("default");
//! # settings.config.size = 16 << 20;
//! # #[cfg(any())]
//! let settings = Settings::from_environment();
//! // Nothing is kept beside the process table, and nobody minds which descriptors are made.
//! let library = Library::of_program("example-1");
//! let (node, ()) = Node::new(settings, library, |_| Ok(()), |_, _| {}).map_err(|why| why.message)?;
//! let (member, segment) = (node.joined().member, &node.joined().segment);
//!
//! // A waiter of this process. Others, who know its member and page, set its bits and wake it.
//! let waiter = Waiter::new(&node)?;
//! std::thread::scope(|scope| {
//!     scope.spawn(|| node.ring(waiter.page(), 5));
//!     while !waiter.sleep(segment, 1000, || false) {}
//! });
//! waiter.take(segment, |bit| assert_eq!(bit, 5));
//! assert_eq!(node.ring(waiter.page(), 6), Rung::Awake, "no system call where nobody sleeps");
//!
//! // A page that is this member's …
//! let head = segment.claim_head(Owner::new(member, Use::Channel))?;
//! segment.settle(head).expect("it was not stopped for long");
//! // … and a look for those of the dead: each kind of page is asked of its handler.
//! let mut handler = |look: &mut Look<'_>, head: ginnel_region::Head| {
//!     let dead = !look.member_lives(head.owner().member);
//!     dead.then(|| segment.take(head)).flatten()
//! };
//! let mut look = Look::begin(&node, Reach::All);
//! assert_eq!(look.pages(&mut [(Use::Channel, &mut handler)]), 0, "its owner lives");
//! look.end(&());
//!
//! waiter.retire(&node);
//! node.leave(0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | part |
//! |---|---|
//! | [`settings`], [`home`] | which segment, in which directory; whether that is the user's alone |
//! | [`node`], [`joined`], [`refusal`] | joining, leaving and coming back |
//! | [`processes`], [`table`] | the process table: who of this user is there, as which library, and lives; locks that outlive their holder |
//! | [`place`] | which peer this kernel is, and which members of other kernels live |
//! | [`life`] | that something of a process lives, by a lock that ends with it |
//! | [`waiter`], [`wake`] | sleeping and being woken: by FIFO, doorbell or the daemon's relay |
//! | [`join`] | a segment of `ginneld` for a process of the host |
//! | [`dead`] | memory of the dead, each kind of page by its handler |
//! | [`budget`], [`cgroup`] | what a memory limit leaves to take of the segment |
//! | [`bits`] | bitmaps, private or shared |
//! | `rights` | what a process may open as it is now |
//!
//! In a process of the host that joined a segment of `ginneld`, somebody has to pass on what
//! machines ring: a thread that waits for [`Bells::own`](wake::relay::Bells::own) and calls
//! [`deliver`](wake::relay::Bells::deliver), as the shim's service thread does.

pub mod bits;
pub mod budget;
pub mod cgroup;
pub mod dead;
pub mod home;
pub mod join;
pub mod joined;
pub mod life;
pub mod node;
pub mod place;
pub mod processes;
pub mod refusal;
mod rights;
pub mod settings;
pub mod table;
pub mod waiter;
pub mod wake;

pub use dead::{Look, Reach};
pub use joined::Joined;
pub use life::LifeLock;
pub use node::{Node, Standing};
pub use processes::{Holdings, Library};
pub use refusal::{Refusal, Unattached};
pub use settings::Settings;
pub use waiter::{Rung, Waiter};
