//! The elements that docs/libvirt.md gives are valid by libvirt's own schema. Nothing is installed.

use ginnel_guest::package::unpacked;
use std::path::Path;
use std::process::{Command, Output};

/// `virt-xml-validate`, which knows its schemas by the place where they would be installed.
fn validate(directory: &Path, domain: &str) -> Output {
    let [schemas, script, tools, library] =
        ["libvirt0", "libvirt-clients", "libxml2-utils", "libxml2"]
            .map(|package| unpacked(package).expect("a package"));
    let text = std::fs::read_to_string(script.join("usr/bin/virt-xml-validate")).expect("a script");
    let place = format!("{}/usr/share/libvirt", schemas.display());
    let (program, file) = (directory.join("virt-xml-validate"), directory.join("domain.xml"));
    std::fs::write(&program, text.replace("/usr/share/libvirt", &place)).expect("written");
    std::fs::write(&file, domain).expect("written");
    let path = std::env::join_paths([tools.join("usr/bin"), "/usr/bin".into(), "/bin".into()])
        .expect("paths");
    let mut command = Command::new("sh");
    command.arg(program).arg(file).arg("domain").env("PATH", path);
    command
        .env("LD_LIBRARY_PATH", library.join("usr/lib/x86_64-linux-gnu"))
        .output()
        .expect("it runs")
}

/// The first example of the page that has this in it.
fn example<'a>(page: &'a str, with: &str) -> &'a str {
    let mut parts = page.split("```xml\n").skip(1).filter_map(|rest| rest.split("```").next());
    parts.find(|part| part.contains(with)).unwrap_or_else(|| panic!("no example has {with}"))
}

#[test]
#[ignore = "test-all: fetches packages"]
fn what_the_page_says_is_valid() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/libvirt.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (memory, segment) = (example(&page, "<memoryBacking"), example(&page, "<shmem"));
    let (port, whole) = (example(&page, "type='vhostuser'"), example(&page, "<qemu:commandline"));
    let sockets = &whole[whole.find("<qemu:commandline").expect("there")
        ..whole.find("</domain>").expect("its end")];
    let domain = format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>one</name>\
         <memory unit='GiB'>1</memory>{memory}<os><type arch='x86_64' machine='q35'>hvm</type></os>\
         <devices>{segment}{port}</devices>{sockets}</domain>"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let done = validate(directory.path(), &domain);
    assert!(done.status.success(), "{done:?}\n{domain}");
    // It does refuse what is wrong.
    let wrong = domain.replace("vectors='4'", "vectors='many'");
    assert!(wrong != domain && !validate(directory.path(), &wrong).status.success());
}
