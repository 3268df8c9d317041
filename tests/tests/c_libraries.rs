//! Programs whose image has another C library, an older one, or little beside it: they run as they
//! do without the shim. That is what a container's image is to a library that is mounted into it.

use ginnel_tests::{Stand, build, image::Image, release, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// Whoever mounts the shim into an image brings nothing else: with a library that only most images
/// have (`libgcc_s.so.1`), no program of the others would start.
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

/// The programs of an image with an older glibc than the library was built for: a program that has
/// the library, and starts one there, keeps it away. (`/bin/sh` stands for `ls` and all others.)
#[test]
fn an_image_with_an_older_glibc() {
    let what = "an image with an older glibc";
    let Some(root) = release::root(&release::UBUNTU_18, what) else { return };
    let Some(image) = Image::like(what, &root) else { return };
    image.copy(&build::shim());
    let stand = Stand::shimmed("older-glibc", &[]);
    let say = "echo \"${LD_PRELOAD-none}\"; /usr/bin/env true";
    let done =
        stand.run(image.command_of_accelerated(&stand, Path::new("/bin/sh")).args(["-c", say]));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
    assert_eq!(done.stdout, "none\n");
    // Said to whoever asks, once.
    let stand = Stand::shimmed("older-glibc-verbose", &[("GINNEL_VERBOSE", "1")]);
    let done =
        stand.run(image.command_of_accelerated(&stand, Path::new("/bin/sh")).args(["-c", say]));
    assert!(done.success() && done.stderr.matches("uses an older glibc").count() == 1, "{done}");
}

/// `ginnel run` looks, too: here at a dynamic linker of such a glibc that is called as a program.
#[test]
fn ginnel_run_with_an_older_glibc() {
    let Some(root) = release::root(&release::UBUNTU_18, "ginnel run with an older glibc") else {
        return;
    };
    let libraries = root.join("lib/x86_64-linux-gnu");
    let stand = Stand::shimmed("older-linker", &[]);
    let mut command = stand.command(build::ginnel());
    command.env_remove("LD_PRELOAD").args(["run", "--"]).arg(libraries.join("ld-2.27.so"));
    let done = stand.run(
        command
            .arg("--library-path")
            .arg(&libraries)
            .arg(root.join("bin/dash"))
            .args(["-c", "echo runs"]),
    );
    assert!(done.success() && done.stdout == "runs\n", "{done}");
    assert!(done.stderr.contains("older glibc") && done.stderr.lines().count() == 1, "{done}");
}

/// What `make portable` built, in images with glibc 2.23, 2.27 and 2.31, carries.
#[test]
fn the_portable_library_in_older_images() {
    for release in [&release::UBUNTU_16, &release::UBUNTU_18, &release::DEBIAN_11] {
        the_portable_library_in_an_image(release);
    }
}

fn the_portable_library_in_an_image(release: &release::Release) {
    let what = &format!("the portable library in an image of {}", release.name);
    let portable = build::release_dir().with_file_name("portable").join("libginnel_shim.so");
    let Some(program) = build::older_program("half_close").filter(|_| portable.exists()) else {
        return skip(what, "make portable was not called");
    };
    let Some(root) = release::root(release, what) else { return };
    let Some(image) = Image::like(what, &root) else { return };
    image.copy(&program);
    let library = portable.to_string_lossy();
    for accelerated in [false, true] {
        image.copy(&portable);
        let stand = Stand::shimmed("portable", &[("LD_PRELOAD", &library)]);
        let start = if accelerated { Image::command_of_accelerated } else { Image::command };
        let done = stand.run(&mut start(&image, &stand, &program));
        assert!(done.success() && done.stderr.is_empty(), "{done}");
        assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
    }
}

/// What an image for musl does with the library: the path that only glibc's dynamic linker follows
/// leads nowhere there, and who starts a program there from a program of glibc's names it so.
#[test]
fn an_image_for_musl() {
    let (Some(image), Some(program)) =
        (Image::bare("an image for musl"), build::musl_program("half_close"))
    else {
        return skip("an image for musl", "it needs root and musl-gcc");
    };
    let linker = format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH);
    for file in [&program, Path::new(&linker), &build::shim()] {
        image.copy(file);
    }
    let stand = Stand::shimmed("musl-image", &[]);
    let done = stand.run(&mut image.command_of_accelerated(&stand, &program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
}

/// A root directory without the library: nothing is said of a preload that is not there.
#[test]
fn an_image_without_the_library() {
    let Some(image) = Image::new("an image without the library") else { return };
    let program = build::program("half_close");
    image.add(&program);
    let stand = Stand::shimmed("no-library", &[]);
    let done = stand.run(&mut image.command_of_accelerated(&stand, &program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
}

/// A program that its user may execute and not read: it is taken for one of the system's.
#[test]
fn a_program_that_cannot_be_read() {
    const NOBODY: u32 = 65534;
    let Some(image) = Image::new("a program that cannot be read") else { return };
    let program = build::program("half_close");
    image.add(&program);
    image.copy(&build::shim());
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours")
    };
    mode(image.root(), 0o755);
    mode(&image.within(&program), 0o711);
    let stand = Stand::shimmed("unreadable", &[]);
    chown(stand.dir(), Some(NOBODY), Some(NOBODY)).expect("root may");
    // What leads there has the library, and looks.
    let mut command = image.command_as(&stand, NOBODY, Path::new("/usr/bin/env"));
    let done = stand.run(command.arg(&program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
}
