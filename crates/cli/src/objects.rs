//! `ginnel ls` and `ginnel rm`: the named objects of a segment.

use crate::args::objects::{Ls, Rm};
use crate::name::SegmentName;
use crate::status::{json, print};
use crate::{served, table};
use anyhow::{Context, Result, anyhow};
use ginnel::{ObjectInfo, Options, Segment, User};
use serde_json::{Value, json};

/// Version of the JSON that both print.
const VERSION: u32 = 1;

/// The segment that is meant. It is not made where there is none.
pub fn open(name: Option<&SegmentName>) -> Result<Segment> {
    let opened = open_as(name, &Options::new().existing(true));
    opened.map_err(|error| anyhow!("{error}; `ginnel segment list` shows those that are"))
}

/// The segment that is meant, opened in this way.
pub fn open_as(name: Option<&SegmentName>, options: &Options) -> ginnel::Result<Segment> {
    match name {
        Some(name) => match served::socket(name.as_str()).filter(|_| !name.is_path()) {
            Some(socket) => options.open(socket),
            None => options.open(name.as_str()),
        },
        None => match served::from_environment() {
            Some(socket) => options.open(socket),
            None => options.own(),
        },
    }
}

/// `ginnel ls`
pub fn list(args: &Ls) -> Result<()> {
    let segment = open(args.segment.as_ref())?;
    let objects = segment.objects()?;
    let shown = segment.path().display();
    if args.json {
        let objects: Vec<Value> = objects.iter().map(as_json).collect();
        return json(
            &json!({"version": VERSION, "segment": shown.to_string(), "objects": objects}),
        );
    }
    if objects.is_empty() {
        return print(&format!("No object in {shown}.\n"));
    }
    print(&table::objects(&objects, table::width()))
}

fn as_json(object: &ObjectInfo) -> Value {
    let user = |user: &User| json!({"pid": user.pid, "program": user.program});
    json!({
        "name": object.name,
        "kind": object.kind.name(),
        "size": object.size,
        "owner": object.owner.as_ref().map(|owner| json!({"pid": owner.pid})),
        "users": object.users.iter().map(user).collect::<Vec<_>>(),
        "waiting": object.waiting,
        "removed": object.removed,
    })
}

/// `ginnel rm`
pub fn remove(args: &Rm) -> Result<()> {
    let segment = open(args.segment.as_ref())?;
    let (mut removed, mut failed) = (Vec::new(), Ok(()));
    for name in &args.names {
        match segment.remove(name) {
            Ok(()) => removed.push(name),
            // The others go all the same; the first that does not is told.
            Err(error) if failed.is_ok() => failed = Err(error),
            Err(_) => {}
        }
    }
    if args.json {
        let shown = segment.path().display().to_string();
        json(&json!({"version": VERSION, "segment": shown, "removed": removed}))?;
    }
    failed.with_context(|| format!("{} of {} removed", removed.len(), args.names.len()))
}
