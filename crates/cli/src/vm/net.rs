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
    let hash = socket.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, ..] = (hash ^ hash >> 32).to_be_bytes().map(|byte| format!("{byte:02x}"));
    format!("52:54:00:{a}:{b}:{c}")
}

fn is_mac(text: &str) -> bool {
    let bytes: Vec<_> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
    let written = text.len() == 17 && text.bytes().all(|byte| byte != b'+');
    bytes.len() == 6
        && written
        && bytes[0].as_ref().is_ok_and(|byte| byte & 1 == 0)
        && bytes.iter().all(Result::is_ok)
}

/// Options with which a QEMU connects, in the order in which it wants them. QEMU comes back within
/// a second when the switch was restarted (`reconnect=1`).
///
/// # Errors
/// [`NoOptions`].
pub fn options(net: &Net<'_>) -> Result<Vec<[String; 2]>, NoOptions> {
    let path = checked(&net.socket.display().to_string())?.to_owned();
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
    Ok(vec![
        ["-chardev".into(), format!("socket,id={id},path={path},reconnect=1")],
        ["-netdev".into(), format!("vhost-user,id={id},chardev={id}{queues}")],
        [
            "-device".into(),
            format!(
                "virtio-net-pci,netdev={id},mac={mac},rx_queue_size={QUEUE},\
                 tx_queue_size={QUEUE}{vectors}"
            ),
        ],
    ])
}

/// Options of a device for sockets between machines, whose context id the switch says. QEMU 7.2
/// does not connect such a device again.
///
/// # Errors
/// [`NoOptions`].
pub fn vsock(socket: &Path, vectors: Option<u16>) -> Result<Vec<[String; 2]>, NoOptions> {
    let path = checked(&socket.display().to_string())?.replace(',', ",,");
    let vectors = vectors.map_or(String::new(), |n| format!(",vectors={n}"));
    Ok(vec![
        ["-chardev".into(), format!("socket,id=ginnel-vsock,path={path}")],
        ["-device".into(), format!("vhost-user-vsock-pci,chardev=ginnel-vsock{vectors}")],
    ])
}

/// Options by which a machine's memory, as QEMU's `-m` has it, is shared.
///
/// # Errors
/// [`NoOptions`].
pub fn memory(size: &str) -> Result<Vec<[String; 2]>, NoOptions> {
    let size = checked(size)?;
    let object = format!("memory-backend-memfd,id=ginnel-memory,size={size},share=on");
    Ok(vec![["-object".into(), object], ["-machine".into(), "memory-backend=ginnel-memory".into()]])
}

fn checked(word: &str) -> Result<&str, NoOptions> {
    if word.contains(char::is_whitespace) || word.is_empty() {
        return Err(NoOptions::Blank(word.into()));
    }
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(socket: &str) -> Net<'_> {
        Net { socket: Path::new(socket), mac: None, queues: 1, vectors: None }
    }

    fn lines(net: &Net<'_>) -> Result<Vec<String>, String> {
        let options = options(net).map_err(|error| error.to_string())?;
        Ok(options.iter().map(|option| option.join(" ")).collect())
    }

    #[test]
    fn as_qemu_wants_them() {
        let mac = Some("52:54:00:00:00:01");
        let all = Net { mac, queues: 4, ..net("/run/a,b.sock") };
        assert_eq!(
            lines(&all).expect("good"),
            [
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
    fn memory_and_sockets() {
        let text = |options: Vec<[String; 2]>| options.concat().join(" ");
        assert_eq!(
            text(memory("2G").expect("good")),
            "-object memory-backend-memfd,id=ginnel-memory,size=2G,share=on \
             -machine memory-backend=ginnel-memory"
        );
        assert_eq!(
            text(vsock(Path::new("/a,b"), Some(0)).expect("good")),
            "-chardev socket,id=ginnel-vsock,path=/a,,b \
             -device vhost-user-vsock-pci,chardev=ginnel-vsock,vectors=0"
        );
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
        assert!(
            memory("1 G").is_err()
                && memory("").is_err()
                && vsock(Path::new("/a b"), None).is_err()
        );
        for mac in
            ["", "52:54:00:00:00", "53:54:00:00:00:01", "52:54:00:00:00:+1", "5254:00:00:00:01"]
        {
            let said = lines(&Net { mac: Some(mac), ..net("/a") }).expect_err(mac);
            assert!(said.contains("no address of a card"), "{mac}: {said}");
        }
    }
}
