//! iceoryx2's own serializer, which refuses what means something else on another machine.

use iceoryx2_cal::serialize::recommended::Recommended;
use iceoryx2_cal::serialize::toml::Toml;
use iceoryx2_cal::serialize::{DeserializeError, Serialize, SerializeError};
use iceoryx2_log::error;

/// Writes down what a service is, as iceoryx2 does by itself.
#[derive(Debug)]
pub struct Serializer;

/// Has an event service a deadline? iceoryx2 counts it from a moment of the creator's monotonic
/// clock, which every machine has for itself.
fn has_deadline<T: serde::Serialize>(value: &T) -> bool {
    let text = Toml::serialize(value).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().any(|line| line.contains("deadline") && line.contains("creation_time"))
        || text.lines().any(|line| line.starts_with('[') && line.contains("deadline"))
}

impl Serialize for Serializer {
    fn serialize<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, SerializeError> {
        let far = crate::segment::segment().is_ok_and(ginnel::adapter::is_between_machines);
        if far && has_deadline(value) {
            error!(from "ginnel-iceoryx2",
                "Unable to create a service with a deadline: several machines have this segment, and each counts time for itself. Leave the deadline out, or have the listener's wait set keep one.");
            return Err(SerializeError::InternalError);
        }
        Recommended::serialize(value)
    }

    fn deserialize<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, DeserializeError> {
        Recommended::deserialize(bytes)
    }
}
