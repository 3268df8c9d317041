//! One script in one mode: run plainly and carried, and judged.
//!
//! A script whose two runs agree is done with. Where they differ, both are repeated, since a
//! machine with much to do delivers late. What the plain runs do not agree upon is open. A
//! difference is one that most of the carried runs show: each like no plain run. So is a known
//! limit.

use super::compare::{Difference, Limits, compare};
use super::run::{Mode, Place};
use super::{Said, Script};

/// How often a script that differs is run in all: most that differ by accident are found out by
/// the first round, and one in a thousand by the second.
const ROUNDS: [usize; 2] = [3, 6];

/// What became of a script in a mode.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The same, as far as the rules demand.
    Same,
    /// It differs by known limits of Ginnel's alone.
    Limits(Limits),
    /// Plain runs differ among themselves, or do not end.
    Open(Difference),
    /// Half of the carried runs differed, or fewer.
    Seldom(Difference),
    /// It differs.
    Differs(Difference),
}

/// Where scripts are judged in one mode.
pub struct Judge {
    /// The mode.
    pub mode: Mode,
    plain: Place,
    /// Where its carried runs are.
    pub carried: Place,
    /// Kinds of differences that are not looked at.
    ignored: Vec<String>,
}

impl Judge {
    /// A judge for `mode`.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self { mode, plain: Place::new(None), carried: Place::new(Some(mode)), ignored: Vec::new() }
    }

    /// One that does not look at differences of these kinds: to see what is behind them.
    #[must_use]
    pub fn ignoring(self, kinds: &[String]) -> Self {
        Self { ignored: kinds.to_vec(), ..self }
    }

    /// Judges `script`.
    pub fn judge(&mut self, script: &Script) -> Verdict {
        let plain = self.plain.run(script);
        self.judge_beside(script, plain)
    }

    /// Runs `script` plainly, for [`Self::judge_beside`] in several modes.
    pub fn run_plainly(&mut self, script: &Script) -> Said {
        self.plain.run(script)
    }

    /// Judges `script`, of which there is a plain run.
    pub fn judge_beside(&mut self, script: &Script, plain: Said) -> Verdict {
        let Self { plain: place, carried, ignored, .. } = self;
        judge_runs(script, ignored, plain, || place.run(script), || carried.run(script))
    }

    /// Whether `script` differs in this kind twice in a row, or in two runs of three. For
    /// minimising, where most candidates are the same and one pair of runs says so.
    pub fn shows(&mut self, script: &Script, kind: &str) -> bool {
        let mut shown = 0;
        let mut plain: Option<Said> = None;
        for run in 0..3 {
            let said = self.plain.run(script);
            if plain.as_ref().is_some_and(|first| compare(script, first, &said, &[]).is_err()) {
                return false;
            }
            let carried = self.carried.run(script);
            let found = compare(script, &said, &carried, &self.ignored)
                .is_err_and(|found| found.kind == kind);
            shown += usize::from(found);
            if shown == 2 || shown == 0 && run == 0 && !found {
                break;
            }
            plain = Some(said);
        }
        shown >= 2
    }
}

/// Judges `script` by a plain run, and what further runs say, wherever they are.
pub fn judge_runs(
    script: &Script,
    ignored: &[String],
    plain: Said,
    mut run_plainly: impl FnMut() -> Said,
    mut run_carried: impl FnMut() -> Said,
) -> Verdict {
    if let Some(hangs) = hung(&plain) {
        return Verdict::Open(hangs);
    }
    let mut plain = vec![plain];
    let mut carried = vec![run_carried()];
    if compare(script, &plain[0], &carried[0], ignored).is_ok_and(|limits| limits.is_empty()) {
        return Verdict::Same;
    }
    let (mut found, mut limits) = (Vec::new(), Vec::new());
    for runs in ROUNDS {
        while carried.len() < runs {
            plain.push(run_plainly());
            carried.push(run_carried());
        }
        if let Some(hangs) = plain.iter().find_map(hung) {
            return Verdict::Open(hangs);
        }
        let open = |said: &Said| compare(script, &plain[0], said, &[]).err();
        if let Some(open) = plain.iter().skip(1).find_map(open) {
            return Verdict::Open(open);
        }
        (found, limits) = (Vec::new(), Vec::new());
        for said in &carried {
            match differs(script, ignored, &plain, said) {
                Ok(met) => limits.extend((!met.is_empty()).then_some(met)),
                Err(one) => found.push(one),
            }
        }
        if (found.len() + limits.len()) * 2 <= runs {
            break;
        }
    }
    let often = |runs: usize| runs * 2 > carried.len();
    let (differing, all) = (found.len(), found.len() + limits.len());
    match (found.into_iter().next(), limits.into_iter().next()) {
        (Some(first), _) if often(differing) => Verdict::Differs(first),
        (_, Some(met)) if often(all) => Verdict::Limits(met),
        (Some(first), _) => Verdict::Seldom(first),
        (None, _) => Verdict::Same,
    }
}

/// How `said` differs from the plain run that it is most like.
fn differs(
    script: &Script,
    ignored: &[String],
    plain: &[Said],
    said: &Said,
) -> Result<Limits, Difference> {
    let apart = |found: &Result<Limits, _>| match found {
        Ok(limits) => usize::from(!limits.is_empty()),
        Err(_) => 2,
    };
    let from = plain.iter().map(|one| compare(script, one, said, ignored));
    from.min_by_key(apart).unwrap_or_else(|| Ok(Limits::new()))
}

/// A plain run that did not end, as on a machine with much to do: there is nothing to compare.
fn hung(plain: &Said) -> Option<Difference> {
    let text = plain.broken.clone()?;
    let at = plain.answers.iter().take_while(|answer| !answer.is_empty()).count();
    Some(Difference {
        at,
        plain: text,
        carried: String::new(),
        kind: "a plain run hangs".to_owned(),
    })
}

/// Whether two plain runs of `script` agree.
#[must_use]
pub fn repeats(script: &Script) -> bool {
    let mut place = Place::new(None);
    let (first, second) = (place.run(script), place.run(script));
    compare(script, &first, &second, &[]).is_ok()
}
