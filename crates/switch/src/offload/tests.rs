use super::*;
use crate::wire::features;

fn frame(v6: bool, tag: bool, payload: usize, flags: u8) -> (Vec<u8>, Offload) {
    let mut frame = [2u8; 12].to_vec();
    if tag {
        frame.extend([0x81, 0, 0, 5]);
    }
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    let ip = frame.len();
    if v6 {
        frame.extend([0x60, 0, 0, 0, 0, 0, TCP, 64]);
        frame.extend((0..32).map(|n| n * 7));
    } else {
        // Length and checksum are set by whoever sends it, and by `cut` again.
        frame.extend([0x46, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, TCP, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0]);
    }
    let tcp = frame.len();
    frame.extend([0x30, 0x39, 0, 80, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 9, 0x80, flags]);
    frame.extend([1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    let header = frame.len() as u16;
    frame.extend((0..payload).map(|n| (n * 31 % 251) as u8));
    let addresses = if v6 { &frame[ip + 8..ip + 40] } else { &frame[ip + 12..ip + 20] };
    let pseudo = !fold(sum(addresses, u64::from(TCP) + (frame.len() - tcp) as u64));
    frame[tcp + 16..tcp + 18].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Some(Checksum { start: tcp as u16, offset: 16 });
    let segments = Some(Segments { v6, ecn: false, header, size: 1000 });
    (frame, Offload { checksum, segments })
}

/// Is the checksum of TCP, over pseudo header and segment, right?
fn is_right(frame: &[u8], v6: bool) -> bool {
    let layers = Layers::of(frame, v6).expect("TCP");
    let (ip, tcp) = (layers.ip, layers.tcp);
    let addresses = if v6 { &frame[ip + 8..ip + 40] } else { &frame[ip + 12..ip + 20] };
    let pseudo = sum(addresses, u64::from(TCP) + (frame.len() - tcp) as u64);
    let of_ip = v6 || fold(sum(&frame[ip..tcp], 0)) == 0;
    of_ip && fold(sum(&frame[tcp..], pseudo)) == 0
}

#[test]
fn the_checksum_of_rfc_1071() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(!fold(sum(&bytes, 0)), 0xddf2);
    assert_eq!(fold(sum(&[0xff; 65536], 0)), 0);
    assert_eq!(!fold(sum(&[1], 0)), 0x0100, "a single byte is the upper one");
}

#[test]
fn a_checksum_is_completed_where_the_receiver_does_not() {
    for (v6, tag) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut frame, offload) = frame(v6, tag, 99, 0x18);
        let offload = Offload { segments: None, ..offload };
        if !v6 {
            let ip = if tag { 18 } else { 14 };
            let header = fold(sum(&frame[ip..ip + 24], 0));
            frame[ip + 10..ip + 12].copy_from_slice(&header.to_be_bytes());
        }
        let mut got = Vec::new();
        let each = |bytes: &mut [u8], left| got.push((bytes.to_vec(), left));
        adapt(&mut frame, offload, 0, &mut Vec::new(), each).expect("TCP");
        let [(bytes, left)] = got.as_slice() else { panic!("one frame") };
        assert!(is_right(bytes, v6), "v6 {v6}, tag {tag}");
        assert_eq!(*left, Offload::default());
    }
}

#[test]
fn segments_are_cut_and_nothing_is_lost() {
    for (v6, tag) in [(false, false), (true, true)] {
        let (mut large, offload) = frame(v6, tag, 2500, CWR | 0x18 | FIN);
        let layers = Layers::of(&large, v6).expect("TCP");
        let payload = large[layers.data..].to_vec();
        let mut got: Vec<Vec<u8>> = Vec::new();
        let each = |bytes: &mut [u8], left| {
            assert_eq!(left, Offload::default());
            got.push(bytes.to_vec());
        };
        adapt(&mut large, offload, features::GUEST_CSUM, &mut Vec::new(), each).expect("TCP");
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), {
            let headers = layers.data;
            [headers + 1000, headers + 1000, headers + 500]
        });
        let data: Vec<u8> = got.iter().flat_map(|one| one[layers.data..].to_vec()).collect();
        assert_eq!(data, payload);
        for (n, one) in got.iter().enumerate() {
            assert!(is_right(one, v6), "segment {n}");
            let at = u32::from_be_bytes(one[layers.tcp + 4..layers.tcp + 8].try_into().expect("4"));
            assert_eq!(at, 0xffff_ff00u32.wrapping_add(1000 * n as u32), "the number wraps");
            let flags = one[layers.tcp + 13];
            let expected = [CWR | 0x10, 0x10, 0x18 | FIN][n];
            assert_eq!(flags, expected, "segment {n}");
        }
    }
}

#[test]
fn what_suits_is_left_alone() {
    let (mut large, offload) = frame(false, false, 2500, 0x18);
    let before = large.clone();
    let agreed = features::GUEST_CSUM | features::GUEST_TSO4;
    let mut calls = 0;
    let each = |bytes: &mut [u8], left| {
        assert_eq!((&*bytes, left), (&before[..], offload));
        calls += 1;
    };
    adapt(&mut large, offload, agreed, &mut Vec::new(), each).expect("TCP");
    assert_eq!(calls, 1);
}

#[test]
fn what_is_no_tcp_is_refused_whatever_its_length() {
    for v6 in [false, true] {
        let (whole, offload) = frame(v6, false, 30, 0x18);
        let data = Layers::of(&whole, v6).expect("TCP").data;
        for len in 0..data {
            let mut short = whole[..len].to_vec();
            let result = adapt(&mut short, offload, 0, &mut Vec::new(), |_, _| {});
            assert_eq!(result, Err(NotTcp), "{len} bytes");
        }
        let mut other = whole.clone();
        other[14] = 0x10;
        assert_eq!(adapt(&mut other, offload, 0, &mut Vec::new(), |_, _| {}), Err(NotTcp));
    }
}

#[test]
fn crumbs_are_not_cut() {
    let (mut large, offload) = frame(false, false, 60000, 0x18);
    let of_size = |size| Offload {
        segments: offload.segments.map(|one| Segments { size, ..one }),
        ..offload
    };
    let mut count = 0;
    let mut cut = |size| adapt(&mut large, of_size(size), 0, &mut Vec::new(), |_, _| count += 1);
    assert_eq!(cut(1), Err(NotTcp));
    assert_eq!(cut(234), Err(NotTcp));
    assert_eq!(cut(536), Ok(()));
    assert_eq!(count, 112);
}
