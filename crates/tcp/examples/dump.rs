//! Prints every slot of the ledger and its channel's words, for the developer: `GINNEL_DIR=… cargo
//! run -p ginnel-tcp --example dump`.
use ginnel_node::processes::Processes;
use ginnel_tcp::Slot;
use ginnel_tcp::layout::Channel;
use ginnel_tcp::ledger::Ledger;
use ginnel_tcp::settings::Settings;
use std::sync::atomic::Ordering::Relaxed;

fn main() {
    let settings = Settings::from_environment();
    let directory = &settings.node.directory;
    let Ok(ledger) = Ledger::open(directory, false) else { return };
    let Ok(processes) = Processes::open(directory, false) else { return };
    let Ok(segment) = ginnel_region::Segment::open(&settings.node.segment) else { return };
    for slot in ledger.slots() {
        print_slot(&ledger, &processes, slot);
        let page = slot.channel.load(Relaxed);
        if page != 0 {
            print_channel(Channel::at(&segment, page), slot.side());
        }
    }
}

fn print_slot(ledger: &Ledger, processes: &Processes, slot: &Slot) {
    let t = slot.tuple();
    let (tx, rx) = (&slot.tx, &slot.rx);
    println!(
        "slot {} {}->{} {:?} {:?} flags {:#x} att {:#x} busy {}/{} holders {:?} ch {}",
        ledger.index(slot),
        t.local_port,
        t.remote_port,
        slot.stage(),
        slot.reason(),
        slot.flags.load(Relaxed),
        slot.attention.load(Relaxed),
        slot.busy_rx.load(Relaxed),
        slot.busy_tx.load(Relaxed),
        slot.held_by()
            .map(|process| processes.process(process).pid.load(Relaxed))
            .collect::<Vec<_>>(),
        slot.channel.load(Relaxed)
    );
    println!(
        "  tx epoch {} sent {} tail {} seen {} begun {} ring {}+{} owed {} resend {}..{}  rx phase {} received {} head {} ring {}+{} frozen {} armed {} tokens {} err {}",
        tx.epoch.load(Relaxed),
        tx.sent.load(Relaxed),
        tx.tail.load(Relaxed),
        tx.head_seen.load(Relaxed),
        tx.begun.load(Relaxed),
        tx.ring_start.load(Relaxed),
        tx.ring_size.load(Relaxed),
        tx.owed.load(Relaxed),
        tx.resend_from.load(Relaxed),
        tx.resend_to.load(Relaxed),
        rx.phase.load(Relaxed),
        rx.received.load(Relaxed),
        rx.head.load(Relaxed),
        rx.ring_start.load(Relaxed),
        rx.ring_size.load(Relaxed),
        rx.frozen.load(Relaxed),
        rx.armed.load(Relaxed),
        rx.tokens.load(Relaxed),
        rx.error.load(Relaxed)
    );
}

fn print_channel(channel: Channel<'_>, side: u8) {
    for (name, d) in [("out", channel.direction(side)), ("in ", channel.direction(1 - side))] {
        println!(
            "  {name} tail {} epoch {} up {:?} down {:?} eof {} grown {}/{} wspace {:#x} head {} wdata {:#x} ack {} freeze {}@{} gate {}",
            d.tail().load(Relaxed),
            d.epoch().load(Relaxed),
            d.switch(1),
            d.switch(0),
            d.eof().load(Relaxed) as i64,
            d.grown().load(Relaxed),
            d.grown_ack().load(Relaxed),
            d.want_space().load(Relaxed),
            d.head().load(Relaxed),
            d.want_data().load(Relaxed),
            d.ack().load(Relaxed),
            d.freeze_epoch().load(Relaxed),
            d.freeze_ring().load(Relaxed),
            d.gate().load(Relaxed)
        );
    }
    println!("  agreed {} {}", channel.agreed(0).load(Relaxed), channel.agreed(1).load(Relaxed));
}
