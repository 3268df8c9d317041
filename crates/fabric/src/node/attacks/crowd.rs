//! Processes whose cgroup lets them keep fewer processors busy than there are.

use super::*;
use crate::node::crowd::online;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// A cgroup that may keep one processor busy. It is removed with this; who was in it has ended.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None` where none can be made.
    fn new(name: &str) -> Option<Self> {
        let name = format!("ginnel-{name}-{}", std::process::id());
        let places = [("cpu.cfs_quota_us", "/sys/fs/cgroup/cpu"), ("cpu.max", "/sys/fs/cgroup")];
        places.into_iter().find_map(|(limit, place)| {
            let own = Self(Path::new(place).join(&name));
            fs::create_dir(&own.0).ok()?;
            // Without the controller the file is not there.
            let mut file = File::options().write(true).open(own.0.join(limit)).ok()?;
            file.write_all(b"100000").ok()?;
            Some(own)
        })
    }

    /// The command, in the cgroup from before it begins.
    fn holds(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        let script = "echo $$ >\"$0\" && exec \"$@\"";
        shell.args(["-c", script]).arg(self.0.join("cgroup.procs")).arg(command.get_program());
        shell.args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Two that share a quota of one processor are a crowd, and two that have one each are none.
#[test]
fn who_shares_a_quota_is_a_crowd_beyond_it() {
    const NAME: &str = "crowd::who_shares_a_quota_is_a_crowd_beyond_it";
    if let Some(place) = std::env::var_os(PLACE) {
        let end = open(&Path::new(&place).join("mpi"));
        let until = Instant::now() + Duration::from_secs(60);
        while end.node().count() < 2 {
            assert!(Instant::now() < until, "the other one does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        println!("\ncrowded: {}", end.node().is_crowded());
        // Until the other one has looked, too.
        let _ = std::io::stdin().read_line(&mut String::new());
        return end.close();
    }
    let (Some(one), Some(two)) = (Cgroup::new("one"), Cgroup::new("two")) else {
        println!("skipped: no cgroup with a quota can be made here (it wants root)");
        return;
    };
    for groups in [[&one, &one], [&one, &two]] {
        let place = tempfile::tempdir().expect("a directory");
        let begun = groups.map(|group| {
            let mut command = group.holds(&again(NAME, place.path()));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started")
        });
        let shares = std::ptr::eq(groups[0], groups[1]);
        let expected = format!("crowded: {}", shares || online() < 2);
        let looked = begun.map(|mut child| {
            let out = child.stdout.take().expect("a pipe");
            let mut lines = BufReader::new(out).lines();
            let said = lines.find_map(|line| line.ok().filter(|line| line.starts_with("crowded")));
            (child, said, lines)
        });
        for (mut child, said, lines) in looked {
            assert_eq!(said.as_ref(), Some(&expected));
            drop(child.stdin.take());
            assert!(child.wait().expect("ended").success());
            drop(lines);
        }
    }
}
