//! iceoryx2's own API, whose memory is a segment of Ginnel's: publish and subscribe, events,
//! request and response, blackboard, between processes, containers and virtual machines of one
//! host.
//!
//! Programs are written as iceoryx2's documentation says, with [`Service`] (or [`Threadsafe`]) in
//! place of `ipc::Service`:
//!
//! ```
//! # let directory = ginnel::testing::directory();
//! use ginnel_iceoryx2::Service;
//! use iceoryx2::prelude::*;
//!
//! let node = NodeBuilder::new().create::<Service>()?;
//! let service = node.service_builder(&"Camera/Exposure".try_into()?)
//!     .publish_subscribe::<u64>()
//!     .open_or_create()?;
//! let (publisher, subscriber) =
//!     (service.publisher_builder().create()?, service.subscriber_builder().create()?);
//! publisher.send_copy(1200)?;
//! assert_eq!(subscriber.receive()?.map(|sample| *sample), Some(1200));
//! # drop((publisher, subscriber, service, node));
//! # drop(directory);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Whom it trusts: everybody in the segment.** iceoryx2 uses shared memory in place, and follows
//! offsets that others wrote there without a look. A process or a machine that writes nonsense can
//! end all who use the segment, and each can read and write what the others say. Ginnel's own
//! objects (the crate `ginnel`) and its sockets stay safe in the same segment.
//!
//! | module | concept of iceoryx2's |
//! |---|---|
//! | [`storage`] | `DynamicStorage`: what all its shared structures lie in |
//! | [`static_storage`] | `StaticStorage`: what services and nodes are |
//! | [`monitoring`] | `Monitoring`: which nodes live |
//! | [`trigger`] | `Event`: waking listeners |
//! | [`serializer`] | `Serialize`: its own, which refuses deadlines between machines |
//! | [`unique`] | `UniqueIdGenerator`: ids that two machines cannot have in common |
//! | [`name`] | `NamedConceptConfiguration`: names as paths |
//!
//! A child of fork makes nothing here: its calls fail ([`last_error`] says
//! [`ginnel::Error::Forked`]). Of the ports that it inherits it has copies of its own, where the
//! segment is a file of this kernel: it may use and drop them, and nobody else notices.

pub mod monitoring;
pub mod name;
mod segment;
pub mod serializer;
mod service;
pub mod static_storage;
pub mod storage;
pub mod trigger;
pub mod unique;

pub use segment::{last_error, use_segment};
pub use service::{Board, Growing, Link, Payload, Service, Threadsafe};
