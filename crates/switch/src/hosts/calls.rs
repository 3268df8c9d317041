//! Connections to other hosts: made, and closed, in a thread of its own.
//!
//! Of two hosts the one with the lower address calls and the other answers, so that there is one
//! connection between them. A call that fails is made again after a second, for ever. What this
//! thread waits for (a host that does not answer, a device) holds up no frame: a connection goes to
//! the thread of the frames once it is there, and comes back to be closed.
//!
//! Who calls must come from the address of a host that is configured, and, where there is a
//! secret, show that it has it, before a connection is made at all.

mod caller;

use super::handshake::Keys;
use super::link::Wire;
use crate::config::FabricConfig;
use crate::ring::Region;
use caller::Caller;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What the thread tells.
#[derive(Debug)]
pub enum News {
    /// A connection with a host is there.
    Made {
        /// The host's place in the configuration.
        host: usize,
        /// The connection.
        wire: Box<dyn Wire>,
        /// Its keys.
        keys: Keys,
        /// It has shown that it has the secret.
        proven: bool,
    },
    /// A connection has ended, by its number.
    Ended {
        /// See [`Wire::id`].
        id: usize,
        /// Why.
        why: String,
    },
    /// A host cannot be reached, or was turned away.
    Trouble {
        /// The host's place in the configuration.
        host: usize,
        /// Why.
        why: String,
    },
    /// None can.
    Broken(String),
}

/// What it is told.
enum Order {
    /// Close a connection. If this host is to call, it calls again.
    Close(usize, Box<dyn Wire>),
    /// Have devices know this memory of machines, and forget all other.
    Know(Vec<Arc<Region>>),
}

/// The thread, as the others see it. It ends when this is dropped.
#[derive(Debug)]
pub struct Calls {
    news: Receiver<News>,
    orders: Option<Sender<Order>>,
    /// Rung when there is news …
    pub bell: Arc<OwnedFd>,
    /// … and when there are orders.
    orders_bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Calls {
    /// Starts it, once `before` has ended.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(config: &FabricConfig, before: Option<Self>) -> anyhow::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (bell, orders_bell) = (Arc::new(eventfd(0, flags)?), Arc::new(eventfd(0, flags)?));
        let ((tell, news), (orders, hear)) = (channel(), channel());
        let bells = (Arc::clone(&bell), Arc::clone(&orders_bell));
        let mut caller = Caller::new(config.clone(), (tell, hear), bells);
        let named = std::thread::Builder::new().name("hosts".into());
        let run = move || {
            // It closes its door, and waits for that: nobody else is to.
            drop(before);
            caller.run();
        };
        let thread = Some(named.spawn(run)?);
        Ok(Self { news, orders: Some(orders), bell, orders_bell, thread })
    }

    /// Ends it, without a wait.
    ///
    /// # Errors
    /// Those of the system: it has ended by then.
    pub fn end(self) -> anyhow::Result<()> {
        let named = std::thread::Builder::new().name("hosts".into());
        named.spawn(move || drop(self))?;
        Ok(())
    }

    /// The next piece of news.
    pub fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// The bell was heard.
    pub fn quiet(&self) {
        quiet(&self.bell);
    }

    /// Has devices know this memory of machines, and forget all other. That may take its time.
    pub fn know(&self, regions: Vec<Arc<Region>>) {
        if let Some(orders) = &self.orders {
            // Without the thread there is no device either.
            let _ = orders.send(Order::Know(regions));
            ring(&self.orders_bell);
        }
    }

    /// Closes a connection of a host; it is called again, if this host is the one to call.
    pub fn close(&self, host: usize, wire: Box<dyn Wire>) {
        if let Some(orders) = &self.orders {
            // Without the thread it is closed here.
            let _ = orders.send(Order::Close(host, wire));
            ring(&self.orders_bell);
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.orders = None;
        ring(&self.orders_bell);
        if let Some(thread) = self.thread.take() {
            // It closes what it has.
            let _ = thread.join();
        }
    }
}

fn ring(bell: &OwnedFd) {
    // A full counter has been rung.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn quiet(bell: &OwnedFd) {
    // It may not have been rung.
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}
