//! Memory in which frames are put together that cannot be copied straight.

/// Memory that is used again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A frame that is not copied straight, behind its header.
    pub(crate) frame: Vec<u8>,
    /// A segment that was cut out of it.
    pub(crate) segment: Vec<u8>,
    /// The same behind a header.
    pub(crate) whole: Vec<u8>,
    /// What a tap device gave.
    pub(crate) tap: Vec<u8>,
}
