//! The other machine: `ginnel bench serve` starts servers for whoever connects, [`Link`] asks it
//! to.
//!
//! One connection for one sample. The asking side sends a line of JSON, [`Request`]; the answers
//! are the lines of the server's result (`listening PORT`, `result …`) or `error …`. Only tasks of
//! this program are run, and none but as a server.

use crate::conn::Address;
use crate::sample::start;
use crate::work::Task;
use anyhow::{Context, Result, bail, ensure};
use ginnel_bench::child::{Values, parse};
use ginnel_bench::cleanup;
use ginnel_bench::ginnel::Ginnel;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// How long a line may take to come.
const PATIENCE: Duration = Duration::from_secs(90);
/// Length of a line, at most.
const LINE: u64 = 4096;

#[derive(Deserialize, Serialize)]
struct Request {
    version: String,
    ginnel: bool,
    task: Task,
}

/// Where a `ginnel bench serve` listens.
pub struct Link(SocketAddr);

/// A server that was started there.
pub struct Far {
    address: SocketAddr,
    lines: std::cell::RefCell<BufReader<TcpStream>>,
}

impl Link {
    /// Tries whether somebody listens.
    pub fn to(address: SocketAddr) -> Result<Self> {
        TcpStream::connect_timeout(&address, Duration::from_secs(10)).with_context(|| {
            format!("nobody listens at {address}: start `ginnel bench serve` there")
        })?;
        Ok(Self(address))
    }

    /// Starts a server there.
    pub fn start(&self, ginnel: bool, task: Task) -> Result<Far> {
        let mut stream = TcpStream::connect_timeout(&self.0, Duration::from_secs(10))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = Request { version: env!("CARGO_PKG_VERSION").into(), ginnel, task };
        stream.write_all((serde_json::to_string(&request)? + "\n").as_bytes())?;
        let mut lines = BufReader::new(stream);
        let first = line(&mut lines)?;
        let port = first
            .strip_prefix("listening ")
            .with_context(|| format!("the other machine said {first:?}"))?;
        let address = SocketAddr::new(self.0.ip(), port.parse()?);
        Ok(Far { address, lines: lines.into() })
    }
}

impl Far {
    /// Where it listens; `at` this address of the machine, if one is given.
    pub fn address(&self, at: Option<IpAddr>) -> Address {
        Address::Tcp(SocketAddr::new(at.unwrap_or(self.address.ip()), self.address.port()))
    }

    /// Waits for its result.
    pub fn result(&self) -> Result<Values> {
        let text = line(&mut *self.lines.borrow_mut())?;
        let values = parse(&text);
        ensure!(!values.is_empty(), "the other machine said {text:?}");
        Ok(values)
    }
}

fn line(lines: &mut impl BufRead) -> Result<String> {
    let mut text = String::new();
    lines.take(LINE).read_line(&mut text)?;
    ensure!(text.ends_with('\n'), "the other machine closed, or said too much");
    Ok(text.trim_end().into())
}

/// Serves until it is ended, one sample after another.
pub fn serve(address: SocketAddr, scratch: &Path) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("listening at {address}"))?;
    println!("listening at {}; measure with ginnel bench --connect", listener.local_addr()?);
    let ginnel = Ginnel::beside();
    for stream in listener.incoming() {
        let mut stream = stream?;
        if let Err(error) = answer(&mut stream, &ginnel, scratch) {
            eprintln!("{error:#}");
            let text = format!("error {}\n", format!("{error:#}").replace('\n', " "));
            let _ = stream.write_all(text.as_bytes());
        }
    }
    cleanup::all();
    Ok(())
}

fn answer(stream: &mut TcpStream, ginnel: &Result<Ginnel>, scratch: &Path) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut lines = BufReader::new(stream.try_clone()?).take(LINE);
    let mut text = String::new();
    if lines.read_line(&mut text)? == 0 {
        // Somebody tried whether we listen.
        return Ok(());
    }
    let request: Request = serde_json::from_str(&text).context("a request of another version?")?;
    ensure!(
        request.version == env!("CARGO_PKG_VERSION"),
        "version {} there, {} here",
        request.version,
        env!("CARGO_PKG_VERSION")
    );
    ensure!(
        request.task.server && request.task.address == "tcp:0.0.0.0:0",
        "only servers on any port are started"
    );
    ensure!(request.task.host_cpu.is_none(), "a server asks no host");
    ensure!(
        (1..=64 << 20).contains(&request.task.size)
            && (1..=10_000).contains(&request.task.connections),
        "out of bounds"
    );
    ensure!(
        [request.task.seconds, request.task.warm_up]
            .iter()
            .all(|seconds| (0.0..=60.0).contains(seconds)),
        "out of bounds"
    );
    let prefix = match (request.ginnel, ginnel) {
        (false, _) => Vec::new(),
        (true, Ok(ginnel)) => ginnel.run(false)?,
        (true, Err(error)) => bail!("{error:#}"),
    };
    let server = start("server", &prefix, &request.task, scratch, None)?;
    stream.write_all(format!("listening {}\n", server.port()?).as_bytes())?;
    let values = server.result()?;
    let text: String = values.iter().map(|(key, value)| format!(" {key}={value}")).collect();
    Ok(stream.write_all(format!("result{text}\n").as_bytes())?)
}
