//! Single behaviours, each by a small program in C of `programs/`: it must hold in the kernel, and
//! then carried.

use crate::support::{carried, compiled, place, product, ran, text};
use std::process::Command;

/// Both ways; what it says on standard error when it is carried.
fn holds(source: &str, flags: &[&str]) -> String {
    holds_with(source, flags, &[])
}

fn holds_with(source: &str, flags: &[&str], arguments: &[&str]) -> String {
    let place = place();
    let program = compiled(place.path(), source, flags);
    let plain = ran(Command::new(&program).args(arguments), 120);
    assert!(plain.status.success(), "plainly: {}\n{}", plain.status, text(&plain.stderr));
    let carried = ran(carried(place.path(), &program).args(arguments), 240);
    assert!(carried.status.success(), "carried: {}\n{}", carried.status, text(&carried.stderr));
    text(&carried.stderr)
}

/// A C program on System V calls, as they are taught: parent and children, a ring buffer in shared
/// memory, semaphores that count what is in it and what has room.
#[test]
fn producers_and_consumers() {
    holds("example.c", &[]);
}

/// kill -9 at any moment of thousands of operations: nothing is half done, and all is undone.
#[test]
fn killed_at_any_moment() {
    holds("killed.c", &[]);
}

#[test]
fn what_two_dead_have_left_is_undone_together() {
    holds("undone.c", &[]);
}

/// Calls that need no lock, and all others, on the same semaphores, with deaths among them.
#[test]
fn tokens_among_calls_that_are_killed() {
    holds_with("mixed.c", &[], &["60"]);
}

#[test]
#[ignore = "test-all: as above, for long"]
fn tokens_among_calls_that_are_killed_for_long() {
    holds_with("mixed.c", &[], &["3000"]);
}

/// Who is attached is counted over fork, exec, exit and kill -9, before the call returns that shows
/// it.
#[test]
fn attached_over_fork_and_death() {
    holds("lives.c", &[]);
}

#[test]
fn what_is_to_be_undone_stays_over_exec() {
    holds("execs.c", &[]);
}

/// Descriptors, maps and other users.
#[test]
fn closes_everything_and_becomes_another() {
    holds("rough.c", &[]);
}

#[test]
fn a_child_that_becomes_another_user_keeps_its_parents_objects() {
    holds("child_becomes_another.c", &[]);
}

/// A handler of a signal runs after the call that it came into, as in the kernel.
#[test]
fn handlers_that_jump_out_of_semop() {
    holds("jumps.c", &[]);
    holds("jumps.c", &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]);
}

#[test]
fn bad_pointers_and_ids() {
    holds("pointers.c", &[]);
}

#[test]
fn shmdt_leaves_other_maps_alone() {
    holds("remapped.c", &[]);
}

/// How often memory is attached stands in a further page of a process that has much in hand, where
/// the list of the memory is full.
#[test]
fn counted_in_a_further_page() {
    holds("many.c", &[]);
}

/// Memory that was removed stays for all that have it, also for those that are in no list.
#[test]
fn more_processes_than_the_list_has_room_for() {
    holds_with("crowd.c", &[], &["4", "0", "full"]);
}

#[test]
#[ignore = "test-all: as above, with so many processes"]
fn more_processes_than_the_list_has_room_for_truly() {
    holds_with("crowd.c", &[], &["520"]);
}

#[test]
fn children_that_find_no_descriptor() {
    holds_with("crowd.c", &[], &["3", "2"]);
}

/// A process that has the segment writes garbage into all of it.
#[test]
fn garbage_crashes_nobody() {
    holds("hostile.c", &[]);
}

/// One word after the other, with values that were chosen to lead elsewhere.
#[test]
fn chosen_words_crash_nobody() {
    holds("attacked.c", &[]);
}

/// In containers, as far as these are namespaces: each sees neither the other's processes nor its
/// System V objects, and both have the segment. One is killed with something to undo.
#[test]
fn from_container_to_container() {
    if !ginnel_tests::is_root() {
        ginnel_tests::skip("System V objects between containers", "namespaces take root");
        return;
    }
    let place = place();
    let program = compiled(place.path(), "meets.c", &[]);
    let contained = |role: &str| {
        let carried = carried(place.path(), &program);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--ipc", "--mount-proc"]);
        command.arg(carried.get_program()).args(carried.get_args()).arg(role);
        for (name, value) in carried.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    };
    let mut holder = contained("holds").spawn().expect("it starts");
    let waits = std::thread::scope(|scope| {
        let waits = scope.spawn(|| ran(&mut contained("waits"), 100));
        std::thread::sleep(std::time::Duration::from_secs(1));
        let _ = holder.kill();
        waits.join().expect("it ends")
    });
    let _ = holder.wait();
    assert!(waits.status.success(), "{}{}", text(&waits.stdout), text(&waits.stderr));
}

/// What does not fit goes to the kernel, and that is said once.
#[test]
fn too_large_goes_to_the_kernel() {
    let said = holds("large.c", &[]);
    assert_eq!(said.matches("stays in the kernel").count(), 1, "{said}");
}

/// The objects are there by name, with who uses them.
#[test]
fn ls_shows_them_and_rm_takes_them_away() {
    let place = place();
    let program = compiled(place.path(), "made.c", &[]);
    let made = ran(&mut carried(place.path(), &program), 60);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let ginnel = |arguments: &[&str]| {
        let mut command = Command::new(product("ginnel"));
        let done = ran(
            command
                .args(arguments)
                .env("GINNEL_DIR", place.path().join("own"))
                .env_remove("GINNEL_SEGMENT"),
            60,
        );
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
        text(&done.stdout)
    };
    let shown = ginnel(&["ls"]);
    assert!(
        shown.contains("sysv.shm.0x00001234") && shown.contains("sysv.sem.0x00001234"),
        "{shown}"
    );
    ginnel(&["rm", "sysv.shm.0x00001234", "sysv.sem.0x00001234"]);
    assert!(!ginnel(&["ls"]).contains("sysv."), "they are gone");
    let again = ran(&mut carried(place.path(), &program), 60);
    assert!(again.status.success(), "{}", text(&again.stderr));
}
