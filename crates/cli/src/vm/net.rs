//! The options by which QEMU connects a machine to a port of `ginnel-switch` (vhost-user).

use std::fmt;
use std::path::Path;

/// Descriptors of each queue: as many as QEMU gives a vhost-user device.
const QUEUE: u16 = 1024;

/// What the machine is to have.
pub struct Net<'a> {
    /// The port's socket.
    pub socket: &'a Path,
    /// The card's address; [`mac_of`] the socket, if none is given.
    pub mac: Option<&'a str>,
    /// Pairs of queues.
    pub queues: u16,
    /// The machine's memory, as QEMU's `-m` has it: then the options that share it are printed too.
    pub memory: Option<&'a str>,
    /// Interrupts of the card, where QEMU is not to choose.
    pub vectors: Option<u16>,
}

/// Why there are no options.
#[derive(Debug, PartialEq, Eq)]
pub enum NoOptions {
    /// The socket's path has a blank in it, which the shell would take apart.
    Blank(String),
    /// It is no Ethernet address of one card.
    Mac(String),
}

impl fmt::Display for NoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank(path) => {
                write!(f, "\"{path}\": a shell would take this apart; choose one without blanks")
            }
            Self::Mac(mac) => {
                write!(f, "\"{mac}\" is no address of a card, like \"52:54:00:12:34:56\"")
            }
        }
    }
}

impl std::error::Error for NoOptions {}

/// An address for the machine at this socket. QEMU gives every machine the same one, and a switch
/// could not tell them apart. In the range that QEMU and libvirt use (52:54:00), by the FNV-1a
/// hash of the path: the same at each start, and hardly ever the same for two.
#[must_use]
pub fn mac_of(socket: &str) -> String {
    let hash = socket.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [a, b, c, ..] = (hash ^ hash >> 32).to_be_bytes().map(|byte| format!("{byte:02x}"));
    format!("52:54:00:{a}:{b}:{c}")
}

fn is_mac(text: &str) -> bool {
    let bytes: Vec<_> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
    let written = text.len() == 17 && text.bytes().all(|byte| byte != b'+');
    bytes.len() == 6 && written && bytes[0].as_ref().is_ok_and(|byte| byte & 1 == 0) && bytes.iter().all(Result::is_ok)
}

/// Options with which a QEMU connects, in the order in which it wants them. QEMU comes back within
/// a second when the switch was restarted (`reconnect=1`).
///
/// # Errors
/// [`NoOptions`].
pub fn options(net: &Net<'_>) -> Result<Vec<[String; 2]>, NoOptions> {
    let path = net.socket.display().to_string();
    for word in [Some(path.as_str()), net.memory].into_iter().flatten() {
        if word.contains(char::is_whitespace) || word.is_empty() {
            return Err(NoOptions::Blank(word.into()));
        }
    }
    let mac = net.mac.map_or_else(|| mac_of(&path), str::to_owned);
    if !is_mac(&mac) {
        return Err(NoOptions::Mac(mac));
    }
    // Two cards of one machine need names of their own.
    let id = format!("ginnel-net-{}", mac.replace(':', ""));
    // A comma in a value is written twice.
    let path = path.replace(',', ",,");
    let (queues, vectors) = match net.queues {
        1 => (String::new(), String::new()),
        // Each queue has an interrupt, and so have the control queue and the configuration.
        n => (format!(",queues={n}"), format!(",mq=on,vectors={}", 2 * n + 2)),
    };
    let vectors = net.vectors.map_or(vectors, |n| format!(",vectors={n}"));
    let mut options = Vec::new();
    if let Some(memory) = net.memory {
        let object = format!("memory-backend-memfd,id=ginnel-memory,size={memory},share=on");
        options.push(["-object".into(), object]);
        options.push(["-machine".into(), "memory-backend=ginnel-memory".into()]);
    }
    options.extend([
        ["-chardev".into(), format!("socket,id={id},path={path},reconnect=1")],
        ["-netdev".into(), format!("vhost-user,id={id},chardev={id}{queues}")],
        [
            "-device".into(),
            format!(
                "virtio-net-pci,netdev={id},mac={mac},rx_queue_size={QUEUE},\
                 tx_queue_size={QUEUE}{vectors}"
            ),
        ],
    ]);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(socket: &str) -> Net<'_> {
        Net { socket: Path::new(socket), mac: None, queues: 1, memory: None, vectors: None }
    }

    fn lines(net: &Net<'_>) -> Result<Vec<String>, String> {
        let options = options(net).map_err(|error| error.to_string())?;
        Ok(options.iter().map(|option| option.join(" ")).collect())
    }

    #[test]
    fn as_qemu_wants_them() {
        let mac = Some("52:54:00:00:00:01");
        let all = Net { mac, queues: 4, memory: Some("2G"), ..net("/run/a,b.sock") };
        assert_eq!(
            lines(&all).expect("good"),
            [
                "-object memory-backend-memfd,id=ginnel-memory,size=2G,share=on",
                "-machine memory-backend=ginnel-memory",
                "-chardev socket,id=ginnel-net-525400000001,path=/run/a,,b.sock,reconnect=1",
                "-netdev vhost-user,id=ginnel-net-525400000001,chardev=ginnel-net-525400000001,queues=4",
                "-device virtio-net-pci,netdev=ginnel-net-525400000001,mac=52:54:00:00:00:01,\
                 rx_queue_size=1024,tx_queue_size=1024,mq=on,vectors=10",
            ]
        );
        let emulated = Net { vectors: Some(0), ..net("/a") };
        assert!(lines(&emulated).expect("good")[2].ends_with("tx_queue_size=1024,vectors=0"));
    }

    #[test]
    fn each_socket_has_an_address_of_its_own() {
        assert_eq!(mac_of("/a"), mac_of("/a"));
        assert_ne!(mac_of("/a"), mac_of("/b"));
        assert!(is_mac(&mac_of("/a")));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(lines(&net("/a b")).expect_err("a blank").contains("without blanks"));
        assert!(lines(&Net { memory: Some("1 G"), ..net("/a") }).is_err());
        for mac in ["", "52:54:00:00:00", "53:54:00:00:00:01", "52:54:00:00:00:+1", "5254:00:00:00:01"] {
            let said = lines(&Net { mac: Some(mac), ..net("/a") }).expect_err(mac);
            assert!(said.contains("no address of a card"), "{mac}: {said}");
        }
    }
}
