//! Shows what `publisher` publishes. `cargo run --example subscriber`

use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;
use std::time::Duration;

extern crate iceoryx2_bb_loggers;

#[derive(Debug, Clone, Copy, ZeroCopySend)]
#[repr(C)]
struct Reading {
    number: u64,
    celsius: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    set_log_level_from_env_or(LogLevel::Info);
    let node = NodeBuilder::new().create::<Service>()?;
    let service = node
        .service_builder(&"Kitchen/Temperature".try_into()?)
        .publish_subscribe::<Reading>()
        .open_or_create()?;
    let subscriber = service.subscriber_builder().create()?;
    while node.wait(Duration::from_millis(100)).is_ok() {
        while let Some(reading) = subscriber.receive()? {
            println!("{}: {} °C", reading.number, reading.celsius);
        }
    }
    Ok(())
}
