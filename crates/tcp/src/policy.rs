//! Which connections may be carried by shared memory: rules of the user's, looked at when a
//! connection's addresses are known.
//!
//! ```text
//! # The first rule that holds decides; what no rule holds for is allowed.
//! deny  program postgres
//! deny  port 22
//! allow address 10.0.0.0/8
//! deny
//! ```
//!
//! A rule is `allow` or `deny` and any number of conditions, which must all hold; none at all hold
//! always. One end's word is enough to keep a connection on TCP.
//!
//! `trust address ADDRESS` says nothing about whether a connection may be carried. It says that its
//! ends need not prove to each other that they hold it ([`crate::proof`]): whoever has the segment
//! can pretend to be the other end. Such a rule names its addresses, and both ends need one.
//!
//! A connection that one program has begun to move and then hands to another, for which the rules
//! are others, goes on as it was.

use std::net::IpAddr;
use std::path::Path;

use crate::tuple::Tuple;

/// Rules in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// What a rule says of the connections for which it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    Deny,
    Trust,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    verdict: Verdict,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    /// The port of either end: a service's is the client's remote and the server's local one.
    Port(u16),
    /// The other end's address begins with so many bits of this one.
    Address([u8; 16], u32),
    /// The running program, by the name or the path of its file.
    Program(String),
}

/// A rule is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    rule: String,
    why: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.why)
    }
}

impl std::error::Error for Error {}

/// The words of a condition.
const CONDITIONS: &str = "port NUMBER, address ADDRESS or ADDRESS/BITS, program NAME";

impl Policy {
    /// From rules, one on each line or between semicolons; `#` begins a remark.
    ///
    /// # Errors
    /// The first rule that is none.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let rules =
            lines.flat_map(|line| line.split(';')).map(str::trim).filter(|rule| !rule.is_empty());
        let rules =
            rules.map(|rule| Rule::parse(rule).map_err(|why| Error { rule: rule.to_owned(), why }));
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// Keeps everything on TCP.
    #[must_use]
    pub fn nothing() -> Self {
        Self { rules: vec![Rule { verdict: Verdict::Deny, conditions: Vec::new() }] }
    }

    /// What is left of it for one program, called by these names: nothing that has to be asked for
    /// again.
    #[must_use]
    pub fn of_program(mut self, names: &[String]) -> Self {
        let called = |name: &str| {
            names.iter().any(|path| {
                path == name || Path::new(path).file_name().is_some_and(|file| file == name)
            })
        };
        let other =
            |condition: &Condition| matches!(condition, Condition::Program(name) if !called(name));
        self.rules.retain(|rule| !rule.conditions.iter().any(other));
        for rule in &mut self.rules {
            rule.conditions.retain(|condition| !matches!(condition, Condition::Program(_)));
        }
        self
    }

    /// Does it keep this connection on TCP? Allocates nothing: asked in the middle of a program's
    /// call, perhaps in a signal handler.
    #[must_use]
    pub fn denies(&self, tuple: &Tuple) -> bool {
        let mut rules = self.rules.iter().filter(|rule| rule.verdict != Verdict::Trust);
        rules.find(|rule| rule.holds(tuple)).is_some_and(|rule| rule.verdict == Verdict::Deny)
    }

    /// Does it keep every connection on TCP, whatever its addresses?
    #[must_use]
    pub fn denies_everything(&self) -> bool {
        let first = self.rules.iter().find(|rule| rule.verdict != Verdict::Trust);
        first.is_some_and(|rule| rule.verdict == Verdict::Deny && rule.conditions.is_empty())
    }

    /// Need this connection's ends not prove that they hold it? Allocates nothing, either.
    #[must_use]
    pub fn trusts(&self, tuple: &Tuple) -> bool {
        self.rules.iter().any(|rule| rule.verdict == Verdict::Trust && rule.holds(tuple))
    }
}

/// Bits of an IPv6 address that a `trust` rule names at least …
const TRUSTED_BITS: u32 = 16;
/// … and of an IPv4 address as IPv6 programs see it, `::ffff:10.0.0.7` (RFC 4291, 2.5.5.2).
const TRUSTED_BITS_OF_IPV4: u32 = 96 + 8;

impl Rule {
    fn holds(&self, tuple: &Tuple) -> bool {
        self.conditions.iter().all(|condition| condition.holds(tuple))
    }

    /// Does a `trust` rule name whom it trusts?
    fn names_addresses(&self) -> bool {
        let ipv4 = |network: &[u8; 16], bits: u32| {
            (u128::from_be_bytes(*network) ^ 0xffff_0000_0000).leading_zeros() >= bits.min(96)
        };
        let named = |condition: &Condition| match condition {
            Condition::Address(network, bits) if ipv4(network, *bits) => {
                *bits >= TRUSTED_BITS_OF_IPV4
            }
            Condition::Address(_, bits) => *bits >= TRUSTED_BITS,
            _ => false,
        };
        self.conditions.iter().any(named)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let verdict = match words.next() {
            Some("allow") => Verdict::Allow,
            Some("deny") => Verdict::Deny,
            Some("trust") => Verdict::Trust,
            _ => return Err("a rule begins with allow, deny or trust".into()),
        };
        let mut conditions = Vec::new();
        while let Some(kind) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("nothing follows {kind:?}; conditions are: {CONDITIONS}"))?;
            conditions.push(match kind {
                "port" => Condition::Port(
                    value.parse().map_err(|_| format!("{value:?} is no port (0 to 65535)"))?,
                ),
                "address" => network(value).ok_or_else(|| {
                    format!("{value:?} is no address, such as 10.0.0.1, 10.0.0.0/8 or fd00::/8")
                })?,
                "program" => Condition::Program(value.to_owned()),
                _ => return Err(format!("{kind:?} is no condition; there are: {CONDITIONS}")),
            });
        }
        let rule = Self { verdict, conditions };
        if verdict == Verdict::Trust && !rule.names_addresses() {
            return Err(
                "trust names whom: address 10.0.0.7, or a network of /8 and more (IPv6: /16)"
                    .into(),
            );
        }
        Ok(rule)
    }
}

/// "10.0.0.0/8". An IPv4 address as the socket calls show it to IPv6 programs (RFC 4291, 2.5.5.2),
/// and so as a [`Tuple`] has it.
fn network(text: &str) -> Option<Condition> {
    let (address, bits) =
        text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let (octets, before) = match address.parse().ok()? {
        IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), 96),
        IpAddr::V6(address) => (address.octets(), 0),
    };
    let bits = bits.map_or(Some(128), |bits| bits.parse::<u32>().ok()?.checked_add(before))?;
    (bits <= 128).then_some(Condition::Address(octets, bits))
}

impl Condition {
    fn holds(&self, tuple: &Tuple) -> bool {
        match self {
            Self::Port(port) => tuple.local_port == *port || tuple.remote_port == *port,
            Self::Address(network, bits) => {
                let differing = u128::from_be_bytes(*network) ^ u128::from_be_bytes(tuple.remote);
                differing.leading_zeros() >= *bits
            }
            // One that does not hold took its rule with it: see `of_program`.
            Self::Program(_) => true,
        }
    }
}

/// The names of this process's program: its file, and what it was called by, which for a script is
/// the script (not where `env` finds the interpreter).
#[must_use]
pub fn program_names() -> Vec<String> {
    let mut names = Vec::new();
    if let Some(file) = ginnel_preload::loaded() {
        let whole = std::fs::canonicalize(&file).unwrap_or_else(|_| file.into());
        names.push(whole.to_string_lossy().into_owned());
    } else if let Ok(file) = std::env::current_exe() {
        // The kernel says so of a file that was replaced while its program runs.
        names.push(file.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    }
    // SAFETY: the kernel's own table, which ends where it says.
    let called = unsafe { libc::getauxval(libc::AT_EXECFN) };
    if called != 0 {
        // SAFETY: AT_EXECFN is a C string at the top of the stack, which stays there.
        let name = unsafe { std::ffi::CStr::from_ptr(called as *const libc::c_char) };
        names.push(name.to_string_lossy().into_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(local_port: u16, remote: &str, remote_port: u16) -> Tuple {
        let Some(Condition::Address(remote, _)) = network(remote) else { panic!("an address") };
        Tuple { label: 0, local: [0; 16], local_port, remote, remote_port }
    }

    fn denies(rules: &str, tuple: &Tuple) -> bool {
        Policy::parse(rules)
            .expect("rules")
            .of_program(&["/usr/sbin/nginx".into(), "./start.sh".into()])
            .denies(tuple)
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        let rules = "deny port 22 # administration\nallow address 10.0.0.0/8; deny\n";
        assert!(denies(rules, &tuple(4000, "10.1.1.1", 22)));
        assert!(denies(rules, &tuple(22, "10.1.1.1", 4000)));
        assert!(!denies(rules, &tuple(4000, "10.1.1.1", 80)));
        assert!(denies(rules, &tuple(4000, "11.1.1.1", 80)));
        assert!(!denies("", &tuple(4000, "11.1.1.1", 80)));
        assert!(denies("deny", &tuple(1, "::1", 2)));
    }

    #[test]
    fn all_conditions_of_a_rule_must_hold() {
        let rules = "deny port 80 address 10.0.0.7 program nginx";
        assert!(denies(rules, &tuple(80, "10.0.0.7", 1)));
        assert!(!denies(rules, &tuple(81, "10.0.0.7", 1)));
        assert!(!denies(rules, &tuple(80, "10.0.0.8", 1)));
        assert!(!denies("deny program ngin", &tuple(80, "10.0.0.7", 1)));
        for program in ["nginx", "/usr/sbin/nginx", "start.sh"] {
            assert!(
                denies(&format!("deny program {program}"), &tuple(80, "10.0.0.7", 1)),
                "{program}"
            );
        }
    }

    #[test]
    fn networks_of_both_kinds() {
        assert!(denies("deny address fd00::/8", &tuple(1, "fd12::1", 2)));
        assert!(!denies("deny address fd00::/8", &tuple(1, "fe80::1", 2)));
        assert!(denies("deny address 0.0.0.0/0", &tuple(1, "192.0.2.1", 2)));
        assert!(!denies("deny address 0.0.0.0/0", &tuple(1, "fd12::1", 2)));
        assert!(denies("deny address ::/0", &tuple(1, "192.0.2.1", 2)));
    }

    #[test]
    fn trust_is_a_word_of_its_own() {
        let rules = "trust address 10.0.0.0/8 port 80; allow address 10.0.0.0/8; deny";
        let policy = Policy::parse(rules).expect("rules");
        let seen = |port, remote| {
            let tuple = tuple(port, remote, 1);
            (policy.trusts(&tuple), policy.denies(&tuple))
        };
        assert_eq!(seen(80, "10.0.0.7"), (true, false));
        assert_eq!(
            seen(81, "10.0.0.7"),
            (false, false),
            "what may be carried is not trusted by that"
        );
        assert_eq!(seen(80, "11.0.0.7"), (false, true));
        let policy = Policy::parse("trust address fd00::/16").expect("rules");
        assert!(policy.trusts(&tuple(1, "fd00::1", 2)) && !policy.trusts(&tuple(1, "fd01::1", 2)));
        assert!(!Policy::default().trusts(&tuple(1, "127.0.0.1", 2)));
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for (rule, word) in [
            ("forbid port 1", "allow, deny or trust"),
            ("trust", "names whom"),
            ("trust port 80", "names whom"),
            ("trust address 0.0.0.0/0", "names whom"),
            ("trust address 10.0.0.0/7", "names whom"),
            ("trust address ::/0", "names whom"),
            ("trust address ::/16", "names whom"),
            ("trust address fd00::/15", "names whom"),
            ("deny port", "nothing follows"),
            ("deny port http", "no port"),
            ("deny port 65536", "no port"),
            ("deny host a", "no condition"),
            ("deny address 10.0.0.0/33", "no address"),
            ("deny address fd00::/129", "no address"),
            ("deny address 10.0.0", "no address"),
        ] {
            let error =
                Policy::parse(&format!("allow port 1\n{rule}\n")).expect_err(rule).to_string();
            assert!(error.contains(word) && error.contains(rule), "{error}");
        }
    }
}
