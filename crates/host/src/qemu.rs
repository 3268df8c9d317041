//! The options by which QEMU joins a segment.

use crate::config::Config;
use std::fmt;

/// Why there are no options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoOptions {
    /// There is no such segment; these there are.
    Segment(String, Vec<String>),
    /// There is no such slot: 1 to so many.
    Slot(u16, u16),
    /// The socket's path has a blank in it, which the shell would take apart.
    Blank(String),
}

impl fmt::Display for NoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment(name, known) => {
                write!(f, "there is no segment {name}; the configuration has: {}", known.join(", "))
            }
            Self::Slot(slot, most) => {
                write!(
                    f,
                    "there is no slot {slot}: choose 1 to {most}, or raise `slots` in the configuration"
                )
            }
            Self::Blank(path) => write!(
                f,
                "{path}: a shell would take this path apart; choose a run_dir without blanks"
            ),
        }
    }
}

impl std::error::Error for NoOptions {}

/// Options with which a QEMU joins `segment` in `slot`, in the order in which it wants them. On
/// machine `q35` the device sits behind a root port of its own, so that it can be unplugged for a
/// migration, with a window in which its memory fits above 4 GiB; or on `bus`, if one is named.
///
/// No `reconnect=`: QEMU's device cannot take a second setup.
///
/// # Errors
/// [`NoOptions`].
pub fn options(
    config: &Config,
    segment: &str,
    slot: u16,
    bus: Option<&str>,
) -> Result<Vec<[String; 2]>, NoOptions> {
    let known = || config.segments.keys().cloned().collect();
    let one =
        config.segments.get(segment).ok_or_else(|| NoOptions::Segment(segment.into(), known()))?;
    if !(1..=one.machines).contains(&slot) {
        return Err(NoOptions::Slot(slot, one.machines));
    }
    let path = config.socket(segment, slot).display().to_string();
    if path.contains(char::is_whitespace) {
        return Err(NoOptions::Blank(path));
    }
    // A comma in a value is written twice.
    let path = path.replace(',', ",,");
    let mut options = vec![["-chardev".into(), format!("socket,id=ginnel-{segment},path={path}")]];
    let port = format!("ginnel-{segment}-port");
    let bus = match bus {
        Some(bus) => bus,
        None => {
            // Root ports must differ in chassis or slot; those without numbers of their own all
            // have 0.
            let chassis =
                200 + config.segments.keys().position(|name| name == segment).unwrap_or(0) % 56;
            // A window that cannot lie below 4 GiB, where firmware marks all of the PCI space
            // uncached (MTRR). Only addresses are taken.
            let reserve = one.size.max(4 << 30) >> 20;
            options.push([
                "-device".into(),
                format!("pcie-root-port,id={port},bus=pcie.0,chassis={chassis},pref64-reserve={reserve}M"),
            ]);
            &port
        }
    };
    let vectors = one.vectors;
    options.push([
        "-device".into(),
        format!("ivshmem-doorbell,id=ginnel-{segment}-device,bus={bus},chardev=ginnel-{segment},vectors={vectors}"),
    ]);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(run_dir: &str) -> Config {
        let toml = format!(
            "run_dir = {run_dir:?}\n[segment.a]\n[segment.b]\nsize = \"64M\"\nslots = 2\nvectors = 3\n"
        );
        Config::parse(&toml, "t".as_ref()).expect("good")
    }

    fn lines(config: &Config, slot: u16, bus: Option<&str>) -> Result<Vec<String>, String> {
        let options = options(config, "b", slot, bus).map_err(|error| error.to_string())?;
        Ok(options.iter().map(|option| option.join(" ")).collect())
    }

    #[test]
    fn as_qemu_wants_them() {
        assert_eq!(
            lines(&config("/run/g"), 2, None).expect("good"),
            [
                "-chardev socket,id=ginnel-b,path=/run/g/b/2.sock",
                "-device pcie-root-port,id=ginnel-b-port,bus=pcie.0,chassis=201,pref64-reserve=4096M",
                "-device ivshmem-doorbell,id=ginnel-b-device,bus=ginnel-b-port,chardev=ginnel-b,vectors=3",
            ]
        );
        let plain = lines(&config("/run/g,h"), 1, Some("pci.0")).expect("good");
        assert_eq!(plain[0], "-chardev socket,id=ginnel-b,path=/run/g,,h/b/1.sock");
        assert_eq!(
            plain[1],
            "-device ivshmem-doorbell,id=ginnel-b-device,bus=pci.0,chardev=ginnel-b,vectors=3"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(
            lines(&config("/run/g"), 3, None).expect_err("two slots").contains("choose 1 to 2")
        );
        assert!(lines(&config("/run/g"), 0, None).expect_err("the host").contains("choose 1 to 2"));
        assert!(
            lines(&config("/run/a b"), 1, None)
                .expect_err("a blank")
                .contains("run_dir without blanks")
        );
        let none = options(&config("/run/g"), "c", 1, None).expect_err("no such segment");
        assert_eq!(none.to_string(), "there is no segment c; the configuration has: a, b");
    }
}
