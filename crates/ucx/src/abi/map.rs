//! Memory that UCP is asked to map.

use std::ffi::c_void;

/// `ucp_mem_map_params_t`
#[repr(C)]
pub struct MapParameters {
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    pub flags: u32,
    pub prot: u32,
    pub memory_type: u32,
}

impl MapParameters {
    /// So many bytes, wherever they lie.
    pub fn allocate(length: usize) -> Self {
        const LENGTH_AND_FLAGS: u64 = 1 << 1 | 1 << 2;
        const ALLOCATE: u32 = 1 << 1;
        Self {
            field_mask: LENGTH_AND_FLAGS,
            address: std::ptr::null_mut(),
            length,
            flags: ALLOCATE,
            prot: 0,
            memory_type: 0,
        }
    }
}

/// `ucp_mem_attr_t`
#[repr(C)]
pub struct MemoryAttributes {
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    pub memory_type: u32,
}

impl Default for MemoryAttributes {
    fn default() -> Self {
        Self { field_mask: 0, address: std::ptr::null_mut(), length: 0, memory_type: 0 }
    }
}
