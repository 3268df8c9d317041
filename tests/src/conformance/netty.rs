//! netty's tests of its transports: over the JDK's sockets, and its own over epoll.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, RESULTS, Reader, Suite, fetch};

const VERSION: &str = "4.1.119.Final";
const JUNIT: &str = "1.9.0";
/// Makes the certificates of the tests of TLS.
const BOUNCY_CASTLE: &str = "1.80";
/// Parts, the packages that their tests lie in, and the classes that are left out.
const PARTS: [(&str, &str, &str); 2] = [
    ("transport.socket", "io.netty.testsuite.transport.socket", ".*SslEcho.*"),
    ("channel.epoll", "io.netty.channel.epoll", ".*(Datagram|Domain|SslEcho).*"),
];

/// Two parts.
///
/// # Errors
/// When Maven cannot fetch them.
pub fn prepare(base: &Path) -> Result<Suite> {
    let jars = base.join("classpath");
    fetch::once(&jars, || {
        fs::write(jars.join("pom.xml"), pom())?;
        fetch::said(&mut fetch::command(
            "mvn",
            &["-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=."],
            &jars,
        ))?;
        Ok(())
    })?;
    let path = format!("{}/*", jars.display());
    let part = |(name, package, without): (&str, &str, &str)| {
        let command = [
            "java",
            "-cp",
            &path,
            "org.junit.platform.console.ConsoleLauncher",
            "--details",
            "none",
            "--reports-dir",
            RESULTS,
            "--select-package",
            package,
            "--exclude-classname",
            without,
        ];
        Part {
            name: name.to_owned(),
            command: command.map(str::to_owned).into(),
            dir: None,
            limit: Duration::from_secs(1800),
            reader: Reader::Junit,
            least: 0,
        }
    };
    let remarks = [
        "Not run: the epoll transport's tests of datagrams and Unix sockets, which are never carried.",
        "Nor SocketSslEchoTest, one megabyte under TLS in 864 settings, for its time: ten minutes for each transport and way.",
    ];
    Ok(Suite {
        version: VERSION.to_owned(),
        remarks: remarks.map(str::to_owned).into(),
        parts: PARTS.map(part).into(),
        ..Suite::default()
    })
}

/// The tests of the epoll transport are in an archive beside its own; the code of this machine's
/// kind in a third.
fn pom() -> String {
    let dependency = |group, name, version, classifier: Option<&str>| {
        let classifier =
            classifier.map_or_else(String::new, |name| format!("<classifier>{name}</classifier>"));
        format!(
            "    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{classifier}</dependency>\n"
        )
    };
    let native = match std::env::consts::ARCH {
        "aarch64" => "linux-aarch_64",
        _ => "linux-x86_64",
    };
    let dependencies = [
        dependency("io.netty", "netty-testsuite", VERSION, None),
        dependency("io.netty", "netty-transport-native-epoll", VERSION, Some(native)),
        dependency("io.netty", "netty-transport-native-epoll", VERSION, Some("tests")),
        dependency("io.netty", "netty-transport-native-unix-common", VERSION, Some("tests")),
        dependency("org.bouncycastle", "bcpkix-jdk18on", BOUNCY_CASTLE, None),
        dependency("org.junit.platform", "junit-platform-console-standalone", JUNIT, None),
    ];
    format!(
        "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>ginnel</groupId>\n  <artifactId>conformance</artifactId>\n  \
         <version>0</version>\n  <packaging>pom</packaging>\n  <dependencies>\n{}  </dependencies>\n</project>\n",
        dependencies.concat()
    )
}
