//! What a page of results is of: without day, commit and machine nobody knows what it still says.

use std::process::Command;

/// Day, commit ("+": with changes) and machine, in words.
pub fn describe() -> String {
    let day = said("date", &["-u", "+%Y-%m-%d"]);
    let commit = said(
        "git",
        &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty=+", "--exclude=*"],
    );
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{day}, commit {commit}, {cores} cores of an {model}, kernel {}",
        said("uname", &["-r"])
    )
}

/// What a command prints; "?" where there is none, or it fails.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success());
    output.map_or_else(
        || "?".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn day_and_commit_are_told() {
        let text = super::describe();
        let day = text.split(',').next().unwrap_or_default();
        assert!(day.len() == 10 && day.bytes().filter(|byte| *byte == b'-').count() == 2, "{text}");
        assert!(text.contains(", commit ") && text.contains(" cores of an "), "{text}");
    }
}
