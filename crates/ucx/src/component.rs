//! What is entered in UCX's list: a component, its memory domain, its transport.

use crate::abi::{
    Component, Domain, DomainOps, Function, Link, OK, Status, Table, Transport, UNSUPPORTED,
    nothing, padded, unsupported,
};
use crate::library::{self, Library, Release};
use crate::{NAME, iface, memory};
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Once;

/// Enters the transport in this UCX's list, once.
pub fn register(library: &'static Library) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| match library.release {
        Some(Release::R13) => enter::<0, 0>(
            library,
            memory::ops(memory::query_13 as Function, memory::pack_13 as Function),
        ),
        Some(Release::R18) => enter::<1, 1>(
            library,
            memory::ops(memory::query_18 as Function, memory::pack_18 as Function),
        ),
        None => {}
    });
}

fn enter<const FLAGS: usize, const COMPARES: usize>(library: &'static Library, ops: DomainOps) {
    let no_link = || Link { previous: null_mut(), next: null_mut() };
    let table = |name: &'static CStr, fields, size| Table::<FLAGS> {
        name: name.as_ptr(),
        prefix: c"GINNEL_".as_ptr(),
        fields,
        size,
        list: no_link(),
        flags: [0; FLAGS],
    };
    // All of it stays for the process's life: UCX has no way to take a transport out of its list.
    let ops: &'static DomainOps = Box::leak(Box::new(ops));
    let component = Box::leak(Box::new(Component::<FLAGS, COMPARES> {
        name: padded(NAME),
        query_md_resources: library.md_resource,
        md_open: open as *const c_void,
        cm_open: unsupported as *const c_void,
        rkey_unpack: memory::unpack as *const c_void,
        rkey_ptr: unsupported as *const c_void,
        rkey_release: nothing as *const c_void,
        rkey_compare: [unsupported as *const c_void; COMPARES],
        md_config: table(c"Ginnel memory domain", library.md_table, SETTINGS),
        cm_config: Table { name: c"".as_ptr(), prefix: c"".as_ptr(), ..table(c"", null_mut(), 0) },
        transports: no_link(),
        list: no_link(),
        flags: 0,
        md_vfs_init: nothing as *const c_void,
    }));
    let transports = &raw mut component.transports;
    component.transports = Link { previous: transports, next: transports };
    let transport = Box::leak(Box::new(Transport::<FLAGS> {
        name: padded(NAME),
        query_devices: devices as *const c_void,
        iface_open: iface::open as *const c_void,
        config: table(c"Ginnel transport", library.iface_table, SETTINGS),
        list: no_link(),
    }));
    let component = &raw mut *component;
    let domain = Box::leak(Box::new(Domain { ops, component: component.cast() }));
    // Set before UCX may ask for it.
    DOMAIN.store(domain, std::sync::atomic::Ordering::Release);
    // SAFETY: both stay, and are laid out as this release has them.
    unsafe {
        (library.component_register)(component.cast());
        (library.tl_register)(component.cast(), (&raw mut *transport).cast());
    }
}

/// Bytes of UCX's own settings of a domain or a transport: no more than this.
const SETTINGS: usize = 64;

/// The one domain: there is nothing in it that could differ.
static DOMAIN: std::sync::atomic::AtomicPtr<Domain> = std::sync::atomic::AtomicPtr::new(null_mut());

unsafe extern "C" fn open(
    _: *mut c_void,
    _: *const i8,
    _: *const c_void,
    domain: *mut *mut Domain,
) -> Status {
    memory::open();
    // SAFETY: UCX's rules.
    unsafe { *domain = DOMAIN.load(std::sync::atomic::Ordering::Acquire) };
    OK
}

unsafe extern "C" fn devices(
    domain: *mut Domain,
    found: *mut *mut c_void,
    count: *mut u32,
) -> Status {
    if let Err(why) = ginnel_fabric::node::default_path() {
        eprintln!("ginnel: {why}");
        // SAFETY: UCX's rules.
        unsafe {
            *found = null_mut();
            *count = 0;
        }
        return OK;
    }
    let Some(library) = library::get() else { return UNSUPPORTED };
    let (net, unknown) = (crate::abi::DEVICE_NET, crate::abi::DEVICE_UNKNOWN);
    // SAFETY: UCX's rules; a terminated name.
    unsafe { (library.single_device)(domain.cast(), NAME.as_ptr(), net, unknown, found, count) }
}
