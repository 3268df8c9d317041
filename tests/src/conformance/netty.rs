//! netty's tests of its transports over the JDK's sockets.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, RESULTS, Reader, Suite, fetch};

const VERSION: &str = "4.1.119.Final";
const JUNIT: &str = "1.9.0";

/// One part.
///
/// # Errors
/// When Maven cannot fetch it.
pub fn prepare(base: &Path) -> Result<Suite> {
    let jars = base.join("jars");
    fetch::once(&jars, || {
        fs::write(jars.join("pom.xml"), pom())?;
        fetch::said(&mut fetch::command("mvn", &["-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=."], &jars))?;
        Ok(())
    })?;
    let path = format!("{}/*", jars.display());
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
        "io.netty.testsuite.transport.socket",
    ];
    let part = Part {
        name: "transport.socket".to_owned(),
        command: command.map(str::to_owned).to_vec(),
        dir: None,
        limit: Duration::from_secs(1800),
        reader: Reader::Junit,
    };
    Ok(Suite { version: VERSION.to_owned(), remarks: Vec::new(), parts: vec![part] })
}

fn pom() -> String {
    let dependency = |group, name, version| {
        format!(
            "    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>\n"
        )
    };
    let dependencies = [
        dependency("io.netty", "netty-testsuite", VERSION),
        dependency("org.junit.platform", "junit-platform-console-standalone", JUNIT),
    ];
    format!(
        "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>ginnel</groupId>\n  <artifactId>conformance</artifactId>\n  \
         <version>0</version>\n  <packaging>pom</packaging>\n  <dependencies>\n{}  </dependencies>\n</project>\n",
        dependencies.concat()
    )
}
