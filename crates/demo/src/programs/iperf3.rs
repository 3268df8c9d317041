//! iperf3, sending as fast as it can in its usual blocks of 128 KiB.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Listen, Load, Program, Setting, excerpt, words};
use crate::tools::Tool;

/// iperf3 and itself.
pub struct Iperf3;

const TOOL: Tool = Tool { names: &["iperf3"], package: "iperf3" };

/// The part of iperf3's report that matters here.
#[derive(Debug, Deserialize)]
struct Report {
    error: Option<String>,
    #[serde(default)]
    end: End,
}

#[derive(Debug, Default, Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Debug, Deserialize)]
struct Sum {
    bits_per_second: f64,
}

impl Program for Iperf3 {
    fn name(&self) -> &'static str {
        "iperf3"
    }

    fn unit(&self) -> &'static str {
        "Gbit/s"
    }

    fn server_tool(&self) -> Tool {
        TOOL
    }

    fn client_tool(&self) -> Tool {
        TOOL
    }

    fn settings(&self) -> &'static [Setting] {
        &[
            Setting { label: "1 stream", arguments: &["-P", "1"] },
            Setting { label: "8 streams", arguments: &["-P", "8"] },
        ]
    }

    fn server(&self, program: &str, listen: &Listen) -> Result<Vec<String>> {
        Ok(words([&program, &"-s", &"-B", &listen.address, &"-p", &listen.port]))
    }

    fn client(&self, load: &Load) -> Result<Vec<String>> {
        let mut command =
            words([&"-c", &load.address, &"-p", &load.port, &"-t", &load.seconds, &"-J"]);
        command.extend(load.setting.words());
        Ok(command)
    }

    fn read(&self, printed: &str) -> Result<f64> {
        let report: Report = serde_json::from_str(printed)
            .with_context(|| format!("iperf3 printed no report: {}", excerpt(printed)))?;
        match report {
            Report { error: Some(error), .. } => bail!("iperf3: {error}"),
            Report { end: End { sum_received: Some(sum) }, .. } if sum.bits_per_second > 0.0 => {
                Ok(sum.bits_per_second / 1e9)
            }
            _ => bail!("iperf3 received nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_rate_counts() {
        let printed = r#"{"start":{},"end":{"sum_sent":{"bits_per_second":9e9},"sum_received":{"bits_per_second":8.5e9}}}"#;
        assert_eq!(Iperf3.read(printed).unwrap(), 8.5);
    }

    #[test]
    fn its_own_words_are_handed_on() {
        let printed =
            r#"{"start":{},"end":{},"error":"unable to connect to server: Connection refused"}"#;
        assert!(Iperf3.read(printed).unwrap_err().to_string().contains("Connection refused"));
        assert!(Iperf3.read("{}").is_err());
    }
}
