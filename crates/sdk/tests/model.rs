//! What every model's test asks: which properties fail in some run of it.

use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// The names of those properties; all of them where the model is `whole`, else as soon as one is
/// found. `without`: which rule is left out.
pub fn discoveries<M>(model: M, without: impl Debug, whole: bool) -> Vec<&'static str>
where
    M: Model<State: Clone + Debug + Eq + Hash + Send + Sync, Action: Clone + Debug + Eq>
        + Send
        + Sync
        + 'static,
{
    let found = if whole { HasDiscoveries::All } else { HasDiscoveries::Any };
    let checker = model.checker().threads(2).finish_when(found).spawn_bfs().join();
    println!("{without:?}: {} states", checker.unique_state_count());
    checker.discoveries().into_keys().collect()
}
