//! Slices, events, requests and blackboards.

use super::{Arguments, Worker, by, done, name, said};
use iceoryx2::prelude::*;
use iceoryx2::service::Service as Kind;

impl<S: Kind> Worker<S> {
    pub(super) fn of_slices(&mut self, call: usize, [a, b, choice, value]: Arguments) -> String {
        match call {
            0 | 1 => {
                let Some(node) = self.nodes.at(b % 2) else { return "none".to_owned() };
                let builder = || {
                    // Now and then a name of another type.
                    let kind = if value % 8 == 0 { "topic" } else { "slice" };
                    let builder = node.service_builder(&name(kind, a));
                    builder.publish_subscribe::<[u8]>().subscriber_max_borrowed_samples(2)
                };
                self.slices.put(a % 2, || by!(choice, builder()))
            }
            2 if choice == 0 => self.slices.drop_at(a % 2),
            2 | 3 => {
                let Some(topic) = self.slices.at(a % 2) else { return "none".to_owned() };
                let way = [
                    AllocationStrategy::PowerOfTwo,
                    AllocationStrategy::BestFit,
                    AllocationStrategy::Static,
                ][choice % 3];
                let builder = topic.publisher_builder().initial_max_slice_len(1 + value % 64);
                let builder = builder.backpressure_strategy(BackpressureStrategy::DiscardData);
                self.slice_publishers.put(b, || builder.allocation_strategy(way).create())
            }
            4 => {
                let Some(topic) = self.slices.at(a % 2) else { return "none".to_owned() };
                self.slice_subscribers.put(b, || topic.subscriber_builder().create())
            }
            5 if choice == 0 => self.slice_publishers.drop_at(a),
            5..=7 => self.slice_publishers.ask(a, |publisher| {
                // Some are larger than what there is room for.
                let len = value % if choice == 1 { 9000 } else { 100 };
                match publisher.loan_slice_uninit(len) {
                    Ok(loan) => said(loan.write_from_fn(|at| (at + value) as u8).send()),
                    Err(why) => format!("{why:?}"),
                }
            }),
            8 => {
                let Some(subscriber) = self.slice_subscribers.at(a) else {
                    return "none".to_owned();
                };
                match subscriber.receive() {
                    Ok(Some(sample)) => {
                        let sum: u64 = sample.payload().iter().map(|&byte| u64::from(byte)).sum();
                        let said = format!("{} of {sum}", sample.payload().len());
                        *self.slice_samples.at(b) = (choice == 0).then_some(sample);
                        said
                    }
                    received => said(received.map(|sample| sample.is_some())),
                }
            }
            _ if choice == 0 => self.slice_subscribers.drop_at(a),
            _ => self.slice_samples.ask(a, |sample| {
                sample.payload().iter().map(|&byte| u64::from(byte)).sum::<u64>().to_string()
            }),
        }
    }

    pub(super) fn of_events(&mut self, call: usize, [a, b, choice, value]: Arguments) -> String {
        match call {
            0 => {
                let Some(node) = self.nodes.at(b % 2) else { return "none".to_owned() };
                let builder = || {
                    let builder = node.service_builder(&name("event", a)).event();
                    let builder =
                        builder.event_id_max_value(9).notifier_created_event(EventId::new(8));
                    builder
                        .notifier_dropped_event(EventId::new(7))
                        .notifier_dead_event(EventId::new(9))
                };
                self.events.put(a % 2, || by!(choice, builder()))
            }
            1 if choice == 0 => self.events.drop_at(a % 2),
            1 | 2 => {
                let Some(events) = self.events.at(a % 2) else { return "none".to_owned() };
                self.notifiers.put(b, || events.notifier_builder().create())
            }
            3 => {
                let Some(events) = self.events.at(a % 2) else { return "none".to_owned() };
                self.listeners.put(b, || events.listener_builder().create())
            }
            4 if choice == 0 => self.notifiers.drop_at(a),
            5 if choice == 0 => self.listeners.drop_at(a),
            4 | 6 => {
                let loses = self.fault.strikes("event", 5);
                let id = EventId::new(value % 12);
                self.notifiers.ask(a, |notifier| {
                    let id = if loses { EventId::new(0) } else { id };
                    said(notifier.notify_with_custom_event_id(id))
                })
            }
            _ => self.listeners.ask(a, |listener| {
                let mut seen = Vec::new();
                let waited = listener.try_wait(|event| seen.push(format!("{event:?}")));
                format!("{} {seen:?}", done(waited))
            }),
        }
    }

    pub(super) fn of_calls(&mut self, call: usize, [a, b, choice, value]: Arguments) -> String {
        let value = value as u64;
        match call {
            0 | 1 => {
                let Some(node) = self.nodes.at(b % 2) else { return "none".to_owned() };
                let builder = || {
                    let builder = node.service_builder(&name("calls", a));
                    let builder =
                        builder.request_response::<u64, u64>().max_response_buffer_size(2);
                    builder.max_active_requests_per_client(2 + value as usize % 2)
                };
                self.calls.put(a % 2, || by!(choice, builder()))
            }
            2 if choice == 0 => self.calls.drop_at(a % 2),
            2 | 3 => {
                let Some(calls) = self.calls.at(a % 2) else { return "none".to_owned() };
                let builder = calls.client_builder();
                let builder = builder.backpressure_strategy(BackpressureStrategy::DiscardData);
                self.clients.put(b, || builder.create())
            }
            4 => {
                let Some(calls) = self.calls.at(a % 2) else { return "none".to_owned() };
                let builder = calls.server_builder();
                let builder = builder.backpressure_strategy(BackpressureStrategy::DiscardData);
                self.servers.put(b, || builder.create())
            }
            5 if choice == 0 => self.clients.drop_at(a),
            6 if choice == 0 => self.servers.drop_at(a),
            5 | 7 => {
                let Some(client) = self.clients.at(a) else { return "none".to_owned() };
                self.pending.put(b, || client.send_copy(value))
            }
            6 | 8 => {
                let Some(server) = self.servers.at(a) else { return "none".to_owned() };
                match server.receive() {
                    Ok(Some(request)) => {
                        let said = request.payload().to_string();
                        *self.requests.at(b) = Some(request);
                        said
                    }
                    received => said(received.map(|request| request.is_some())),
                }
            }
            9 if choice == 0 => self.requests.drop_at(a),
            9 => self.requests.ask(a, |request| {
                format!("{} {}", request.is_connected(), done(request.send_copy(value)))
            }),
            10 if choice == 0 => self.pending.drop_at(a),
            10 => {
                let Some(pending) = self.pending.at(a) else { return "none".to_owned() };
                let about = (pending.is_connected(), pending.number_of_server_connections());
                match pending.receive() {
                    Ok(Some(response)) => {
                        let said = format!("{about:?} {}", response.payload());
                        *self.responses.at(b) = (choice == 1).then_some(response);
                        said
                    }
                    received => format!("{about:?} {}", said(received.map(|it| it.is_some()))),
                }
            }
            _ => self.responses.drop_at(a),
        }
    }

    pub(super) fn of_boards(&mut self, call: usize, [a, b, choice, value]: Arguments) -> String {
        let value = value as u64;
        match call {
            0 => {
                let Some(node) = self.nodes.at(b % 2) else { return "none".to_owned() };
                let builder = node.service_builder(&name("board", a)).blackboard_creator::<u64>();
                let builder = builder.add::<u64>(1, value).add::<[u64; 5]>(2, [value; 5]);
                self.boards.put(a % 2, || builder.create())
            }
            1 => {
                let Some(node) = self.nodes.at(b % 2) else { return "none".to_owned() };
                let builder = node.service_builder(&name("board", a)).blackboard_opener::<u64>();
                self.boards.put(a % 2, || builder.open())
            }
            2 if choice == 0 => self.boards.drop_at(a % 2),
            2 | 3 => {
                let Some(board) = self.boards.at(a % 2) else { return "none".to_owned() };
                self.writers.put(b, || board.writer_builder().create())
            }
            4 => {
                let Some(board) = self.boards.at(a % 2) else { return "none".to_owned() };
                self.readers.put(b, || board.reader_builder().create())
            }
            5 if choice == 0 => self.writers.drop_at(a),
            5 | 6 => self.writers.ask(a, |writer| {
                let one = writer.entry::<u64>(&1).map(|entry| entry.update_with_copy(value));
                let other = writer.entry::<[u64; 5]>(&(2 + value % 2));
                let other = other.map(|entry| entry.update_with_copy([value; 5]));
                format!("{} {}", done(one), done(other))
            }),
            _ if choice == 0 => self.readers.drop_at(a),
            _ => self.readers.ask(a, |reader| {
                let one = reader.entry::<u64>(&1).map(|entry| *entry.get());
                let other = reader.entry::<[u64; 5]>(&2).map(|entry| *entry.get());
                format!("{} {}", said(one), said(other))
            }),
        }
    }
}
