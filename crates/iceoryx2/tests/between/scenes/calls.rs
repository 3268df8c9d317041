//! Request and response.

use super::{Stand, name, seen, until, wait_for};
use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::request_response::PortFactory as Factory;

type Calls = Factory<Service, [u64; 2], (), u64, ()>;

fn open(stand: &Stand, of: &str) -> Calls {
    let service = stand.node.service_builder(&name(of)).request_response::<[u64; 2], u64>();
    service.max_response_buffer_size(8).open_or_create().expect("a service")
}

fn until_served(calls: &Calls) {
    until("a server", || seen(|see| calls.dynamic_config().list_servers(|_| see())) == 1);
}

/// One answer to each.
pub mod answers {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let calls = open(stand, "sum");
        let client = calls.client_builder().create().expect("a client");
        until_served(&calls);
        for number in 0..100 {
            let pending = client.send_copy([number, 1000]).expect("asked");
            let answer = wait_for("an answer", || pending.receive().expect("received"));
            assert_eq!(*answer.payload(), number + 1000);
        }
    }

    pub fn second(stand: &mut Stand) {
        let server = open(stand, "sum").server_builder().create().expect("a server");
        for _ in 0..100 {
            let request = wait_for("a request", || server.receive().expect("received"));
            let [one, other] = *request.payload();
            request.send_copy(one + other).expect("answered");
        }
    }
}

/// Many answers to one, in order, beside those to another; what nobody asked for goes nowhere.
pub mod streams {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let calls = open(stand, "many");
        let client = calls.client_builder().create().expect("a client");
        until_served(&calls);
        let pending = [10, 20].map(|number| client.send_copy([number, 8]).expect("asked"));
        for step in 0..8 {
            for (of, number) in pending.iter().zip([10, 20]) {
                let answer = wait_for("an answer", || of.receive().expect("received"));
                assert_eq!(*answer.payload(), number + step);
            }
        }
        stand.meet();
        assert!(pending.iter().all(|of| of.receive().expect("received").is_none()));
    }

    pub fn second(stand: &mut Stand) {
        let server = open(stand, "many").server_builder().create().expect("a server");
        let requests = [(); 2].map(|()| {
            let request = wait_for("a request", || server.receive().expect("received"));
            assert!(request.is_connected());
            request
        });
        for step in 0..8 {
            for request in &requests {
                request.send_copy(request.payload()[0] + step).expect("answered");
            }
        }
        drop(requests);
        stand.meet();
    }
}

/// Who waits no longer for answers is known to who answers.
pub mod given_up {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let calls = open(stand, "given up");
        let client = calls.client_builder().create().expect("a client");
        until_served(&calls);
        let pending = client.send_copy([1, 1]).expect("asked");
        stand.meet();
        drop(pending);
        // The next one is asked and answered all the same.
        let pending = client.send_copy([2, 2]).expect("asked");
        let answer = wait_for("an answer", || pending.receive().expect("received"));
        assert_eq!(*answer.payload(), 4);
    }

    pub fn second(stand: &mut Stand) {
        let server = open(stand, "given up").server_builder().create().expect("a server");
        let request = wait_for("a request", || server.receive().expect("received"));
        assert!(request.is_connected());
        stand.meet();
        until("an end", || !request.is_connected());
        drop(request);
        let request = wait_for("a request", || server.receive().expect("received"));
        request.send_copy(request.payload().iter().sum()).expect("answered");
    }
}

/// Answers that are larger than all before.
pub mod largest_answers {
    use super::*;

    type Slices = Factory<Service, u64, (), [u8], ()>;

    fn open(stand: &Stand) -> Slices {
        let service = stand.node.service_builder(&name("larger")).request_response::<u64, [u8]>();
        service.open_or_create().expect("a service")
    }

    pub fn first(stand: &mut Stand) {
        let calls = open(stand);
        let client = calls.client_builder().create().expect("a client");
        until("a server", || seen(|see| calls.dynamic_config().list_servers(|_| see())) == 1);
        for power in 0..15 {
            let pending = client.send_copy(1 << power).expect("asked");
            let answer = wait_for("an answer", || pending.receive().expect("received"));
            assert_eq!(answer.payload(), vec![power as u8; 1 << power]);
        }
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let server = open(stand);
        let server = server.server_builder().allocation_strategy(AllocationStrategy::PowerOfTwo);
        let server = server.initial_max_slice_len(1).create().expect("a server");
        for power in 0..15 {
            let request = wait_for("a request", || server.receive().expect("received"));
            let answer = request.loan_slice_uninit(*request.payload() as usize).expect("a loan");
            answer.write_from_fn(|_| power as u8).send().expect("answered");
        }
        // Of a server that is gone, nobody finds memory any more that was made last.
        stand.meet();
    }
}
