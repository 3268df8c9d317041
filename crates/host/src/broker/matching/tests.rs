use super::*;

const HOST: Place = Place { owner: 1, within: None };
/// As many as a user may have of one process that nobody else has a pair with.
const SHARE: usize = 114;

fn end(client: Client, connected: bool, numbers: (u32, u32)) -> End {
    let numbers = Numbers { sent: numbers.0, received: numbers.1 };
    End { client, number: 9, connected, numbers, place: HOST }
}

/// The server's end waits, and the client's comes; both are told.
fn meet(
    matching: &mut Matching,
    client: Client,
    server: Client,
    number: u32,
) -> Result<Pair, Verdict> {
    let now = Instant::now();
    assert_eq!(matching.hand_in(end(server, false, (number, 1)), now), Ok(None));
    let pair = matching.hand_in(end(client, true, (1, number)), now).map_err(|refusal| {
        assert!(refusal.also.is_some_and(|end| end.client == server), "both hear of it");
        refusal.verdict
    })?;
    let pair = pair.expect("both are there");
    if pair.is_new {
        assert_eq!(
            matching.introduced(pair.id),
            Introduced { has_ended: false, queued: Vec::new() }
        );
    }
    Ok(pair)
}

/// A client of user 7 and one of user 8.
fn two(matching: &mut Matching) -> (Client, Client) {
    (matching.enter(7).expect("room"), matching.enter(8).expect("room"))
}

#[test]
fn two_ends_that_mirror_each_other_are_a_pair_and_stay_one() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, server) = two(&mut matching);
    let pair = meet(&mut matching, client, server, 10).expect("a pair");
    assert!(pair.is_new && pair.first.client == server && pair.second.client == client);
    assert!(!matching.is_waited());
    assert_eq!(matching.hand_in(end(client, true, (11, 21)), now), Ok(None));
    let again =
        matching.hand_in(end(server, false, (21, 11)), now).expect("no refusal").expect("a pair");
    assert!(!again.is_new && again.id == pair.id, "a pair that has a memory gets no second one");
    assert_eq!(matching.leave(server), [(client, pair.id)]);
    assert_eq!(matching.leave(client), []);
    assert!(matching.shares.are_free() && matching.pairs.is_empty() && matching.clients.is_empty());
}

#[test]
fn a_pair_that_is_not_needed_ends_and_costs_nothing() {
    let mut matching = Matching::new(1);
    let (client, server) = two(&mut matching);
    let stranger = matching.enter(9).expect("room");
    let pair = meet(&mut matching, client, server, 10).expect("a pair");
    assert_eq!(matching.part(stranger, pair.id), None, "it is not the stranger's to end");
    assert_eq!(matching.part(server, pair.id), Some(client));
    assert_eq!(matching.shares.together(7, 8), 1, "the client has it mapped yet");
    assert_eq!(matching.part(client, pair.id), None);
    assert!(meet(&mut matching, client, server, 11).expect("room again").is_new);
}

/// Who takes a memory and goes leaves it with the other, who has it mapped while the connection
/// lasts.
#[test]
fn a_pair_counts_until_both_are_through_with_it() {
    let mut matching = Matching::new(1);
    let (client, server) = two(&mut matching);
    let pair = meet(&mut matching, client, server, 10).expect("a pair");
    assert_eq!(matching.leave(client), [(server, pair.id)]);
    let again = matching.enter(7).expect("room");
    assert_eq!(meet(&mut matching, again, server, 11), Err(Verdict::TooManyPairs));
    assert_eq!(matching.part(server, pair.id), None);
    assert!(meet(&mut matching, again, server, 12).expect("room again").is_new);
    assert_eq!(matching.leave(server).len(), 1);
    assert_eq!(matching.leave(again), []);
    assert!(matching.shares.are_free() && matching.pairs.is_empty());
}

/// Both ends of a second connection come while the first one's processes are being told.
#[test]
fn what_meets_before_both_have_the_memory_is_told_after_it() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, server) = two(&mut matching);
    let ends_meet = |number: u32, matching: &mut Matching| {
        assert_eq!(matching.hand_in(end(server, false, (number, 1)), now), Ok(None));
        matching.hand_in(end(client, true, (1, number)), now).expect("no refusal")
    };
    let new = ends_meet(10, &mut matching).expect("a pair");
    assert_eq!(ends_meet(11, &mut matching), None, "one of the two may not have the memory yet");
    let Introduced { has_ended, queued } = matching.introduced(new.id);
    assert!(
        !has_ended
            && queued.len() == 1
            && queued[0].id == new.id
            && queued[0].second.numbers.received == 11
    );
    assert!(ends_meet(12, &mut matching).is_some_and(|pair| !pair.is_new));
    // The same, where the new pair comes to nothing.
    assert_eq!(matching.part(client, new.id), Some(server));
    let new = ends_meet(13, &mut matching).expect("a pair anew");
    assert_eq!(ends_meet(14, &mut matching), None);
    assert_eq!(matching.undo(new.id).len(), 1);
}

/// The word of its end goes out while they are told: it may come before the memory does.
#[test]
fn a_pair_that_ends_while_they_are_told_is_known_to_have_ended() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, server) = two(&mut matching);
    assert_eq!(matching.hand_in(end(server, false, (10, 1)), now), Ok(None));
    let pair =
        matching.hand_in(end(client, true, (1, 10)), now).expect("no refusal").expect("a pair");
    assert_eq!(matching.leave(server), [(client, pair.id)]);
    assert_eq!(matching.part(client, pair.id), None);
    assert!(matching.introduced(pair.id).has_ended);
    assert_eq!(matching.leave(client), []);
    assert!(matching.shares.are_free() && matching.pairs.is_empty());
}

#[test]
fn others_get_nothing() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, server) = two(&mut matching);
    let stranger = matching.enter(9).expect("room");
    assert_eq!(matching.hand_in(end(server, false, (20, 10)), now), Ok(None));
    // Another connection; the same end once more; both ends that connected.
    assert_eq!(matching.hand_in(end(stranger, true, (10, 21)), now), Ok(None));
    assert_eq!(matching.hand_in(end(stranger, false, (20, 10)), now), Ok(None));
    assert_eq!(matching.hand_in(end(stranger, false, (10, 20)), now), Ok(None));
    // A forged one, in a network of the stranger's own: the end that waits goes on waiting.
    let elsewhere = Place { owner: 2, within: None };
    assert_eq!(
        matching.hand_in(End { place: elsewhere, ..end(stranger, true, (10, 20)) }, now),
        Ok(None)
    );
    let pair =
        matching.hand_in(end(client, true, (10, 20)), now).expect("no refusal").expect("a pair");
    assert_eq!(pair.first.client, server);
}

/// Whoever forged it comes first, and as often as he likes.
#[test]
fn a_foreign_end_that_waits_first_keeps_nobody_from_the_true_one() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, server) = two(&mut matching);
    let forgers: Vec<Client> = (0..2 * SAME).map(|_| matching.enter(9).expect("room")).collect();
    let foreign = |client, connected| End {
        place: Place { owner: 2, within: None },
        ..end(client, connected, (10, 20))
    };
    let waits = forgers
        .iter()
        .filter(|forger| matching.hand_in(foreign(**forger, true), now) == Ok(None))
        .count();
    assert_eq!(waits, SAME);
    assert_eq!(matching.hand_in(end(server, false, (20, 10)), now), Ok(None));
    let pair =
        matching.hand_in(end(client, true, (10, 20)), now).expect("no refusal").expect("a pair");
    assert_eq!((pair.first.client, pair.second.client), (server, client));
    let told = matching.give_up(now + PATIENCE);
    assert!(
        told.len() == SAME && told.iter().all(|(_, verdict)| *verdict == Verdict::OtherNetwork)
    );
    // Where only the foreign one comes, both hear why it was nobody; and may ask again.
    assert_eq!(matching.hand_in(foreign(forgers[0], true), now), Ok(None));
    assert_eq!(matching.hand_in(end(server, false, (20, 10)), now), Ok(None));
    assert_eq!(
        matching
            .give_up(now + PATIENCE)
            .iter()
            .filter(|(_, verdict)| *verdict == Verdict::OtherNetwork)
            .count(),
        2
    );
}

/// On loopback the kernel draws the same numbers in each network, but for the time.
#[test]
fn on_loopback_both_ends_are_in_one_network() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, server) = two(&mut matching);
    let at = |within| Place { owner: 1, within };
    let stranger = matching.enter(9).expect("room");
    assert_eq!(
        matching.hand_in(End { place: at(Some(3)), ..end(server, false, (20, 10)) }, now),
        Ok(None)
    );
    assert_eq!(
        matching.hand_in(End { place: at(Some(4)), ..end(stranger, true, (10, 20)) }, now),
        Ok(None)
    );
    let pair = matching.hand_in(End { place: at(Some(3)), ..end(client, true, (10, 20)) }, now);
    let pair = pair.expect("no refusal").expect("a pair");
    assert_eq!(pair.first.client, server);
    matching.introduced(pair.id);
    // Translated at one end: its other end has other addresses, and so other numbers than
    // loopback's.
    assert_eq!(
        matching.hand_in(End { place: at(Some(3)), ..end(client, true, (11, 21)) }, now),
        Ok(None)
    );
    assert!(matching.hand_in(end(server, false, (21, 11)), now).expect("no refusal").is_some());
}

#[test]
fn one_process_needs_no_broker() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, _) = two(&mut matching);
    assert_eq!(matching.hand_in(end(client, false, (20, 10)), now), Ok(None));
    assert_eq!(matching.hand_in(end(client, true, (10, 20)), now), Err(Verdict::OneProcess.into()));
}

#[test]
fn who_waits_in_vain_is_given_up_and_may_ask_again() {
    let (mut matching, now) = (Matching::new(4), Instant::now());
    let (client, server) = two(&mut matching);
    assert_eq!(matching.hand_in(end(client, true, (10, 20)), now), Ok(None));
    assert!(matching.give_up(now).is_empty());
    let late = now + PATIENCE;
    // The other end comes when it is too late, and waits itself.
    assert_eq!(matching.hand_in(end(server, false, (20, 10)), late), Ok(None));
    assert_eq!(matching.give_up(late), [(end(client, true, (10, 20)), Verdict::Nobody)]);
    assert!(matching.hand_in(end(client, true, (10, 20)), late).expect("no refusal").is_some());
}

#[test]
fn what_one_user_has_costs_another_nothing() {
    let (mut matching, now) = (Matching::new(2), Instant::now());
    let (client, server) = two(&mut matching);
    let wait = |number: u32, matching: &mut Matching| {
        matching.hand_in(end(client, true, (number, 1000)), now)
    };
    let waits = (0..).take_while(|&number| wait(number, &mut matching) == Ok(None)).count();
    assert_eq!(waits, 256);
    assert_eq!(wait(u32::MAX, &mut matching), Err(Verdict::TooMany.into()));
    // To ask again takes no place more.
    assert_eq!(wait(0, &mut matching), Ok(None));
    assert_eq!(matching.hand_in(end(server, false, (5, 6)), now), Ok(None));
    assert_eq!(matching.give_up(now + PATIENCE).len(), 256 + 1);
    assert!(!matching.is_waited());
    let others = std::iter::from_fn(|| matching.enter(7)).count();
    assert_eq!(others, CLIENTS_OF_USER - 1);
    assert!(matching.enter(10).is_some());
}

/// What a hostile server takes of a user, by handing each connection in as another process, is what
/// the two may have together. The user's pairs with others are his.
#[test]
fn pairs_count_to_two_users_together() {
    let mut matching = Matching::new(2);
    let hostile: Vec<Client> = (0..3).map(|_| matching.enter(8).expect("room")).collect();
    let (client, honest) = (matching.enter(7).expect("room"), matching.enter(9).expect("room"));
    let first = meet(&mut matching, client, hostile[0], 10).expect("a pair");
    meet(&mut matching, client, hostile[1], 11).expect("a pair");
    assert_eq!(meet(&mut matching, client, hostile[2], 12), Err(Verdict::TooManyPairs));
    assert_eq!(
        meet(&mut matching, hostile[2], client, 13),
        Err(Verdict::TooManyPairs),
        "whoever connects"
    );
    assert!(!meet(&mut matching, client, hostile[0], 14).expect("it has one").is_new);
    meet(&mut matching, client, honest, 15).expect("another user's");
    meet(&mut matching, hostile[2], honest, 16).expect("the hostile one's own with others");
    matching.undo(first.id);
    meet(&mut matching, client, hostile[2], 17).expect("given back");
}

/// Four users who had 256 pairs each filled a server, once.
#[test]
fn whoever_has_none_gets_a_pair_with_a_server_that_others_want_to_fill() {
    let mut matching = Matching::new(usize::MAX);
    let server = matching.enter(1).expect("room");
    let mut number = 0;
    let mut fill = |user: u32, matching: &mut Matching| -> usize {
        let pairs = std::iter::from_fn(|| {
            number += 1;
            let client = matching.enter(user)?;
            meet(matching, client, server, number).ok()
        });
        pairs.count()
    };
    assert_eq!(fill(100, &mut matching), SHARE, "more than one needs, and not all there is");
    let others: Vec<usize> = (101..140).map(|user| fill(user, &mut matching)).collect();
    assert!(others.iter().all(|&pairs| pairs > 0), "{others:?}");
}
