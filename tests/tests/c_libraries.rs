//! Programs whose image has another C library, an older one, or little beside it: they run as they do
//! without the shim. That is what a container's image is to a library that is mounted into it.

use ginnel_tests::{Stand, build, image::Image};

/// Whoever mounts the shim into an image brings nothing else: with a library that only most images have
/// (`libgcc_s.so.1`), no program of the others would start.
#[test]
fn an_image_with_the_c_library_alone() {
    let Some(image) = Image::new("an image with the C library alone") else { return };
    let program = build::program("half_close");
    image.add(&program);
    image.copy(&build::shim());
    let stand = Stand::shimmed("bare-image", &[]);
    let done = stand.run(&mut image.command(&stand, &program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
}
