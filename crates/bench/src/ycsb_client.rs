//! `ginnel-bench-ycsb-client`: YCSB's core workloads without a JVM, for virtual machines that have
//! no room for one.
//!
//! Keys, their distribution and the records' bytes are those of YCSB 0.17 with its default settings
//! and of `benchmarks/ycsb`'s codec, and the report has the lines that its `GinnelDB` writes. So
//! what one stores the other reads. One client, one connection, one question at a time.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use ginnel_cache::client::Client;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// YCSB's workloads without a JVM
#[derive(Debug, Parser)]
#[command(name = "ginnel-bench-ycsb-client", version)]
struct Options {
    #[command(subcommand)]
    command: Work,
}

#[derive(Debug, Subcommand)]
enum Work {
    /// Store all records
    Load(Place),
    /// Read and update records, and print what was counted
    Run(Run),
}

#[derive(Debug, Clone, clap::Args)]
struct Place {
    /// HOST:PORT
    #[arg(long)]
    address: String,
    /// Records of 1 KiB
    #[arg(long)]
    records: u64,
}

#[derive(Debug, Clone, clap::Args)]
struct Run {
    #[command(flatten)]
    place: Place,
    /// Share of operations that read; the others write a whole record
    #[arg(long)]
    reads: f64,
    /// Operations a second; without it as many as there can be
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds in which nothing is counted
    #[arg(long)]
    warmup: f64,
    /// Seconds that are counted
    #[arg(long)]
    seconds: f64,
    /// Seed of the random numbers: another for each client
    #[arg(long)]
    seed: u64,
}

/// Fields of a record, and bytes of each.
const FIELDS: usize = 10;
const FIELD: usize = 100;

/// YCSB's hash of a number (`Utils.fnvhash64`).
fn hash(mut number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for _ in 0..8 {
        hash = (hash ^ (number & 0xff)).wrapping_mul(1_099_511_628_211);
        number >>= 8;
    }
    hash.cast_signed().unsigned_abs()
}

fn key(number: u64) -> String {
    format!("user{}", hash(number))
}

/// Which record an operation is about (`ScrambledZipfianGenerator`): zipfian over ten thousand
/// million numbers, whatever the count of records, strewn over these by a hash.
struct Zipfian {
    eta: f64,
    records: u64,
}

impl Zipfian {
    const THETA: f64 = 0.99;
    const NUMBERS: f64 = 1e10;
    const ZETA: f64 = 26.469_028_201_783_02;

    fn new(records: u64) -> Self {
        let zeta_of_two = 1.0 + 0.5_f64.powf(Self::THETA);
        let eta = (1.0 - (2.0 / Self::NUMBERS).powf(1.0 - Self::THETA))
            / (1.0 - zeta_of_two / Self::ZETA);
        Self { eta, records }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank below 2^34"
    )]
    fn rank(&self, unit: f64) -> u64 {
        let scaled = unit * Self::ZETA;
        match scaled {
            _ if scaled < 1.0 => 0,
            _ if scaled < 1.0 + 0.5_f64.powf(Self::THETA) => 1,
            _ => {
                (Self::NUMBERS * (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - Self::THETA)))
                    as u64
            }
        }
    }

    fn pick(&self, random: &mut SmallRng) -> u64 {
        loop {
            // As there: one number too many is drawn from, and thrown away.
            let number = hash(self.rank(random.random())) % (self.records + 1);
            if number < self.records {
                return number;
            }
        }
    }
}

/// A record's bytes: for each field the lengths of name and content, then both.
fn encode(random: &mut SmallRng) -> Vec<u8> {
    let mut record = Vec::with_capacity(FIELDS * (FIELD + 16));
    for field in 0..FIELDS {
        let name = format!("field{field}");
        for len in [name.len(), FIELD] {
            record.extend_from_slice(&u32::try_from(len).unwrap_or(0).to_be_bytes());
        }
        record.extend_from_slice(name.as_bytes());
        record.extend((0..FIELD).map(|_| random.random_range(b' '..=b'~')));
    }
    record
}

/// Splits a record into its fields' names and contents; nothing of one that is not whole.
fn decode(mut record: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut fields = Vec::new();
    let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?) as usize);
    while !record.is_empty() {
        let (head, rest) = record.split_at_checked(8)?;
        let (name, rest) = rest.split_at_checked(number(&head[..4])?)?;
        let (content, rest) = rest.split_at_checked(number(&head[4..])?)?;
        fields.push((String::from_utf8_lossy(name).into_owned(), content.to_vec()));
        record = rest;
    }
    Some(fields)
}

fn load(place: &Place) -> Result<()> {
    let (mut client, mut random) = (Client::connect(&place.address)?, SmallRng::seed_from_u64(1));
    for number in 0..place.records {
        let stored = client.set(key(number).as_bytes(), &encode(&mut random), 0, 0);
        ensure!(stored.context("storing a record")?, "not stored");
    }
    Ok(())
}

fn run(run: &Run) -> Result<String> {
    let mut client = Client::connect(&run.place.address)?;
    let (zipfian, mut random) =
        (Zipfian::new(run.place.records), SmallRng::seed_from_u64(run.seed));
    let (mut reads, mut updates) = (Histogram::<u64>::new(3)?, Histogram::<u64>::new(3)?);
    let (mut misses, mut failed, mut done) = (0, 0, 0.0);
    let tick = run.rate.map(|rate| 1.0 / rate);
    let begun = Instant::now();
    let phase = tick.unwrap_or(0.0) * random.random::<f64>();
    let (warm, over) =
        (Duration::from_secs_f64(run.warmup), Duration::from_secs_f64(run.warmup + run.seconds));
    let (mut counted, mut before) = (None, client.counts());
    loop {
        if let Some(tick) = tick {
            let due = Duration::from_secs_f64(phase + tick * done);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        done += 1.0;
        let (name, is_read) = (key(zipfian.pick(&mut random)), random.random::<f64>() < run.reads);
        if counted.is_none() && begun.elapsed() >= warm {
            (counted, before) = (Some(Instant::now()), client.counts());
            (misses, failed) = (0, 0);
        }
        // As YCSB does, what is to be stored is made up before the call.
        let record = if is_read { Vec::new() } else { encode(&mut random) };
        let at = Instant::now();
        if is_read {
            match client.get(name.as_bytes()).map(|found| found.map(|item| decode(item.value))) {
                Ok(Some(Some(fields))) if fields.len() == FIELDS => {}
                Ok(None) => misses += 1,
                _ => failed += 1,
            }
        } else if !client.set(name.as_bytes(), &record, 0, 0).unwrap_or(false) {
            failed += 1;
        }
        let ns = u64::try_from(at.elapsed().as_nanos())?;
        if counted.is_some() {
            if is_read { reads.record(ns)? } else { updates.record(ns)? }
        }
        if begun.elapsed() >= over {
            break;
        }
    }
    let (seconds, counts) =
        (counted.map_or(0.0, |from| from.elapsed().as_secs_f64()), client.counts());
    let (direct, asked) = (counts.direct - before.direct, counts.asked - before.asked);
    let mut text = format!(
        "seconds {seconds}\nmisses {misses}\nfailed {failed}\ndirect {direct}\nasked {asked}\n"
    );
    for (what, histogram) in [("read", &reads), ("update", &updates)] {
        for value in histogram.iter_recorded() {
            writeln!(
                text,
                "{what} {} {}",
                value.value_iterated_to(),
                value.count_since_last_iteration()
            )?;
        }
    }
    Ok(text)
}

fn main() -> Result<()> {
    match Options::parse().command {
        Work::Load(place) => load(&place),
        Work::Run(wanted) => {
            print!("{}", run(&wanted)?);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that YCSB 0.17's `Utils.fnvhash64` gives.
    #[test]
    fn numbers_are_hashed_as_ycsb_does() {
        assert_eq!(key(0), "user6284781860667377211");
        assert_eq!(key(1), "user8517097267634966620");
        assert_eq!(key(2), "user1820151046732198393");
    }

    #[test]
    fn the_most_wanted_record_has_its_share() {
        let (zipfian, mut random) = (Zipfian::new(1000), SmallRng::seed_from_u64(7));
        let most = hash(0) % 1001;
        let draws = 100_000;
        let hits = (0..draws).filter(|_| zipfian.pick(&mut random) == most).count();
        let share = hits as f64 / f64::from(draws);
        let expected = 1.0 / Zipfian::ZETA;
        assert!((share - expected).abs() < 0.01, "{share}, not {expected}");
    }

    #[test]
    fn a_record_comes_back_whole_or_not_at_all() {
        let record = encode(&mut SmallRng::seed_from_u64(2));
        let fields = decode(&record).expect("whole");
        assert_eq!(fields.len(), FIELDS);
        assert!(
            fields
                .iter()
                .all(|(name, content)| name.starts_with("field") && content.len() == FIELD)
        );
        assert!(
            (1..record.len())
                .filter(|len| !len.is_multiple_of(8 + 6 + FIELD))
                .all(|len| decode(&record[..len]).is_none())
        );
    }
}
