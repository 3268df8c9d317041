//! Blackboards.

use super::{Stand, name, until};

/// Values of several types; the reader sees the last.
pub mod values {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let board = stand.node.service_builder(&name("board")).blackboard_creator::<u64>();
        let board = board.add::<u64>(1, 0).add::<[f64; 3]>(2, [0.5, 1.5, 2.5]);
        let board = board.create().expect("a board");
        let writer = board.writer_builder().create().expect("a writer");
        let speed = writer.entry::<u64>(&1).expect("an entry");
        stand.meet();
        (0..1000).for_each(|value| speed.update_with_copy(value));
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let board = stand.node.service_builder(&name("board")).blackboard_opener::<u64>();
        let board = board.open().expect("a board");
        let reader = board.reader_builder().create().expect("a reader");
        let (speed, ratio) = (reader.entry::<u64>(&1), reader.entry::<[f64; 3]>(&2));
        let (speed, ratio) = (speed.expect("an entry"), ratio.expect("an entry"));
        until("the last value", || *speed.get() == 999);
        assert_eq!(*ratio.get(), [0.5, 1.5, 2.5]);
        assert!(reader.entry::<u64>(&3).is_err(), "nobody wrote that");
        assert!(reader.entry::<u32>(&1).is_err(), "of another type");
        stand.meet();
    }
}

/// What is read while it is written is whole, and never older than what was read before.
pub mod whole_values {
    use super::*;

    const LAST: u64 = 20_000;

    pub fn first(stand: &mut Stand) {
        let board = stand.node.service_builder(&name("whole")).blackboard_creator::<u64>();
        let board = board.add::<[u64; 32]>(1, [0; 32]).create().expect("a board");
        let writer = board.writer_builder().create().expect("a writer");
        let entry = writer.entry::<[u64; 32]>(&1).expect("an entry");
        stand.meet();
        stand.meet();
        (1..=LAST).for_each(|value| entry.update_with_copy([value; 32]));
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let board = stand.node.service_builder(&name("whole")).blackboard_opener::<u64>();
        let board = board.open().expect("a board");
        let reader = board.reader_builder().create().expect("a reader");
        let entry = reader.entry::<[u64; 32]>(&1).expect("an entry");
        stand.meet();
        let mut last = 0;
        while last < LAST {
            let value = *entry.get();
            assert!(value.iter().all(|word| *word == value[0]), "torn: {value:?}");
            assert!(value[0] >= last, "{} after {last}", value[0]);
            last = value[0];
        }
        stand.meet();
    }
}
