use super::*;

const ME: Mac = [2, 0, 0, 0, 0, 1];

fn filter(addresses: &[&str]) -> Filter {
    let addresses = addresses.iter().map(|text| text.parse().expect("good")).collect();
    Filter { macs: vec![ME], addresses }
}

fn frame(source: Mac, kind: u16, body: &[u8]) -> Vec<u8> {
    [&[0xff; 6][..], &source, &kind.to_be_bytes(), body].concat()
}

fn ipv4(source: [u8; 4]) -> Vec<u8> {
    [&[0x45; 12][..], &source, &[10, 0, 0, 9]].concat()
}

fn arp(sender: Mac, address: [u8; 4]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, 2][..], &sender, &address, &[0; 10]].concat()
}

#[test]
fn networks() {
    let network: Network = "10.1.2.0/23".parse().expect("good");
    let holds = |text: &str| network.holds(text.parse().expect("good"));
    assert!(holds("10.1.3.255") && !holds("10.1.4.0") && !holds("::a01:300"));
    let single: Network = "fd00::1/128".parse().expect("good");
    assert!(single.single().is_some());
    assert!("0.0.0.0/0".parse::<Network>().expect("good").holds(Ipv4Addr::BROADCAST.into()));
    for wrong in
        ["10.0.0.0/33", "10.0.0/8", "::/129", "", "10.0.0.1/", "10.0.0.1/-1", "10.0.0.0/+8"]
    {
        assert!(wrong.parse::<Network>().expect_err(wrong).contains("is no address"));
    }
    for (wide, first) in [
        ("10.0.0.1/31", "10.0.0.0/31"),
        ("0.0.0.1/0", "0.0.0.0/0"),
        ("fd00::1/64", "fd00::/64"),
        ("::1/0", "::/0"),
        ("::ffff:10.0.0.1", "write \"10.0.0.1\""),
    ] {
        assert!(wide.parse::<Network>().expect_err(wide).contains(first), "{wide}");
    }
}

#[test]
fn only_its_own_addresses() {
    let filter = filter(&["10.0.0.5", "2001:db8::5"]);
    let check = |source, kind, body: &[u8]| filter.check(&frame(source, kind, body), None);
    assert_eq!(check(ME, IPV4, &ipv4([10, 0, 0, 5])), Ok(()));
    assert_eq!(check(ME, IPV4, &ipv4([0, 0, 0, 0])), Ok(()), "DHCP");
    assert_eq!(check(ME, IPV4, &ipv4([10, 0, 0, 6])), Err(Spoofed::Address));
    assert_eq!(check([2, 0, 0, 0, 0, 2], IPV4, &ipv4([10, 0, 0, 5])), Err(Spoofed::Mac));
    assert_eq!(check(ME, ARP, &arp(ME, [10, 0, 0, 5])), Ok(()));
    assert_eq!(check(ME, ARP, &arp(ME, [10, 0, 0, 1])), Err(Spoofed::Address));
    assert_eq!(check(ME, ARP, &arp([2; 6], [10, 0, 0, 5])), Err(Spoofed::Address));
    assert_eq!(check(ME, 0x88cc, &[]), Ok(()), "what is neither");
}

#[test]
fn nobody_asks_for_an_address_as_if_it_would_have_it_itself() {
    let both = filter(&["10.0.0.5", "2001:db8::5"]);
    let probe = |target: [u8; 4]| {
        let mut body = arp(ME, [0; 4]);
        body[24..28].copy_from_slice(&target);
        both.check(&frame(ME, ARP, &body), None)
    };
    assert_eq!(probe([10, 0, 0, 5]), Ok(()));
    assert_eq!(probe([10, 0, 0, 1]), Err(Spoofed::Address));
    let ask = |source: &str, target: &str, extensions: &[u8]| {
        let next = if extensions.is_empty() { ICMPV6 } else { 0 };
        let mut frame = advertisement(source, target, next, extensions);
        frame[ETHERNET + 40 + extensions.len()] = NEIGHBOUR_SOLICITATION;
        both.check(&frame, None)
    };
    for extensions in [&[][..], &[ICMPV6, 0, 0, 0, 0, 0, 0, 0]] {
        assert_eq!(ask("::", "2001:db8::5", extensions), Ok(()));
        assert_eq!(ask("::", "fe80::1", extensions), Ok(()), "one of its link");
        assert_eq!(ask("::", "2001:db8::6", extensions), Err(Spoofed::Address));
        assert_eq!(ask("fe80::1", "2001:db8::6", extensions), Ok(()), "where a neighbour is");
    }
}

#[test]
fn a_header_of_ieee_802_2_hides_no_address() {
    let filter = filter(&["10.0.0.5"]);
    let said = |body: &[u8]| filter.check(&frame(ME, body.len() as u16, body), None);
    let behind = |header: &[u8], kind: u16| {
        said(&[header, &kind.to_be_bytes()[..], &ipv4([10, 0, 0, 5]), &[0; 20]].concat())
    };
    let [types, bridged, other] = [[0, 0, 0], [0, 0, 0xf8], [0, 0, 0x0c]]
        .map(|group| [&[0xaa, 0xaa, 3][..], &group].concat());
    for kind in [IPV4, ARP, IPV6, VLAN] {
        assert_eq!(behind(&types, kind), Err(Spoofed::Address), "{kind:x}");
        assert_eq!(behind(&bridged, kind), Err(Spoofed::Address), "{kind:x}");
    }
    assert_eq!(behind(&[0xab, 0xaa, 3, 0, 0, 0], IPV4), Err(Spoofed::Address), "a group");
    assert_eq!(behind(&other, 0x2000), Ok(()), "what is no type of Ethernet");
    assert_eq!(said(&[&[6, 6, 3][..], &ipv4([10, 0, 0, 5])].concat()), Err(Spoofed::Address));
    assert_eq!(said(&[0x42; 40]), Ok(()), "spanning tree");
    let tagged = [&[0, 7, 0, 60][..], &types, &[8, 0], &ipv4([10, 0, 0, 6])].concat();
    let tagged = frame(ME, VLAN, &tagged);
    assert_eq!(filter.check(&tagged, None), Err(Spoofed::Address));
    // Nor does a checksum that makes it one of these.
    let plain = frame(ME, 40, &[0x42; 40]);
    assert_eq!(filter.check(&plain, Some(ETHERNET)), Err(Spoofed::Address));
    assert_eq!(filter.check(&plain, Some(ETHERNET + 6)), Err(Spoofed::Address));
}

#[test]
fn also_behind_a_tag_and_cut_short() {
    let filter = filter(&["10.0.0.5"]);
    let tagged = |inner: u16, body: &[u8]| {
        let body = [&[0, 7][..], &inner.to_be_bytes(), body].concat();
        filter.check(&frame(ME, VLAN, &body), None)
    };
    assert_eq!(tagged(IPV4, &ipv4([10, 0, 0, 5])), Ok(()));
    assert_eq!(tagged(IPV4, &ipv4([10, 0, 0, 6])), Err(Spoofed::Address));
    assert_eq!(tagged(VLAN, &ipv4([10, 0, 0, 5])), Err(Spoofed::Address), "a second tag");
    for len in 0..30 {
        let short = &frame(ME, IPV4, &ipv4([10, 0, 0, 5]))[..len];
        assert!(filter.check(short, None).is_err(), "{len} bytes");
    }
}

#[test]
fn neighbours_of_ipv6() {
    let packet = |source: &str, target: &str| advertisement(source, target, ICMPV6, &[]);
    let six = filter(&["2001:db8::5"]);
    let check = |frame: &[u8]| six.check(frame, None);
    assert_eq!(check(&packet("fe80::1", "2001:db8::5")), Ok(()));
    assert_eq!(check(&packet("fe80::1", "2001:db8::6")), Err(Spoofed::Address));
    assert_eq!(check(&packet("2001:db8::6", "2001:db8::5")), Err(Spoofed::Address));
    assert_eq!(
        filter(&["10.0.0.5"]).check(&packet("fe80::1", "fe80::1"), None),
        Err(Spoofed::Address)
    );
}

/// A neighbour advertisement behind extension headers, the first of which is `next`.
fn advertisement(source: &str, target: &str, next: u8, extensions: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("good").octets();
    let mut packet = vec![0x60, 0, 0, 0, 0, 24, next, 255];
    packet.extend(address(source));
    packet.extend([0xff; 16]);
    packet.extend(extensions);
    packet.extend([NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend(address(target));
    frame(ME, IPV6, &packet)
}

#[test]
fn neighbours_behind_extension_headers() {
    let six = filter(&["2001:db8::5"]);
    let check = |next: u8, extensions: &[u8], target: &str| {
        six.check(&advertisement("fe80::1", target, next, extensions), None)
    };
    let (own, other) = ("2001:db8::5", "2001:db8::6");
    let icmp = [ICMPV6, 0, 0, 0, 0, 0, 0, 0];
    for next in [0, 43, 60, 135, 139, 140] {
        assert_eq!(check(next, &icmp, own), Ok(()), "{next}");
        assert_eq!(check(next, &icmp, other), Err(Spoofed::Address), "{next}");
    }
    // Of 12 bytes, which it says otherwise.
    let authentication = [ICMPV6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(check(AUTHENTICATION, &authentication, own), Ok(()));
    assert_eq!(check(AUTHENTICATION, &authentication, other), Err(Spoofed::Address));
    let two = [[60, 0, 0, 0, 0, 0, 0, 0], icmp].concat();
    assert_eq!(check(0, &two, other), Err(Spoofed::Address));
    // In pieces nobody advertises anything; a later piece carries anything.
    let piece = |place: u16| [&[ICMPV6, 0][..], &place.to_be_bytes(), &[0; 4]].concat();
    assert_eq!(check(FRAGMENT, &piece(1), own), Err(Spoofed::Address));
    assert_eq!(check(FRAGMENT, &piece(8), other), Ok(()));
    // Headers that go on beyond what is copied: what follows cannot be seen.
    let long = [ICMPV6, 20, 0, 0, 0, 0, 0, 0];
    assert_eq!(check(0, &long, own), Err(Spoofed::Address));
}

#[test]
fn nobody_says_that_it_is_the_router_who_may_not_speak_for_all() {
    let said = |kind: u8, source: &str, extensions: &[u8]| {
        let next = if extensions.is_empty() { ICMPV6 } else { 60 };
        let mut frame = advertisement(source, "2001:db8::5", next, extensions);
        frame[ETHERNET + 40 + extensions.len()] = kind;
        frame
    };
    let of = |addresses: &[&str], frame: &[u8]| filter(addresses).check(frame, None);
    for kind in [ROUTER_ADVERTISEMENT, REDIRECT] {
        for extensions in [&[][..], &[ICMPV6, 0, 0, 0, 0, 0, 0, 0]] {
            let frame = said(kind, "fe80::1", extensions);
            assert_eq!(of(&["2001:db8::5"], &frame), Err(Spoofed::Address), "{kind}");
            assert_eq!(of(&["2001:db8::/32", "fe80::1"], &frame), Err(Spoofed::Address));
            assert_eq!(of(&["::/0"], &frame), Ok(()), "the router");
        }
    }
    assert_eq!(of(&["2001:db8::5"], &said(133, "fe80::1", &[])), Ok(()), "who asks for one");
}

#[test]
fn an_address_of_its_link_that_is_named_is_the_only_one() {
    let of = |addresses: &[&str], source: &str, target: &str| {
        filter(addresses).check(&advertisement(source, target, ICMPV6, &[]), None)
    };
    let named = ["2001:db8::5", "fe80::5"];
    assert_eq!(of(&["2001:db8::5"], "fe80::1", "fe80::1"), Ok(()), "any, if none is named");
    assert_eq!(of(&named, "fe80::5", "fe80::5"), Ok(()));
    assert_eq!(of(&named, "fe80::5", "fe80::1"), Err(Spoofed::Address));
    assert_eq!(of(&named, "fe80::1", "fe80::5"), Err(Spoofed::Address));
    assert_eq!(of(&named, "::", "2001:db8::5"), Ok(()), "it has none yet");
}

#[test]
fn no_checksum_is_written_into_what_was_checked() {
    let both = filter(&["10.0.0.5", "2001:db8::5"]);
    let fits = |frame: &[u8], written| both.check(frame, Some(written)) == Ok(());
    let four = frame(ME, IPV4, &[ipv4([10, 0, 0, 5]), vec![0; 40]].concat());
    assert!(!fits(&four, 26) && !fits(&four, 33) && fits(&four, 34) && fits(&four, 50));
    let body = [&[0, 7, 8, 0][..], &ipv4([10, 0, 0, 5]), &[0; 40]].concat();
    let tagged = frame(ME, VLAN, &body);
    assert!(!fits(&tagged, 16) && !fits(&tagged, 30) && fits(&tagged, 54));
    // With another kind inside, the kind itself could be written.
    let other = frame(ME, VLAN, &[&[0, 7, 0x88, 0xb5][..], &[0; 60]].concat());
    assert!(!fits(&other, 16) && fits(&other, 18));
    let arp = frame(ME, ARP, &arp(ME, [10, 0, 0, 5]));
    assert!(!fits(&arp, 28));
    let icmp = [ICMPV6, 0, 0, 0, 0, 0, 0, 0];
    let six = advertisement("fe80::1", "2001:db8::5", 0, &icmp);
    assert!(!fits(&six, 22) && !fits(&six, 62) && !fits(&six, 70) && !fits(&six, 84));
    // An echo would become the advertisement that it may not send.
    let mut echo = advertisement("fe80::1", "2001:db8::6", ICMPV6, &[]);
    echo[ETHERNET + 40] = 128;
    assert!(!fits(&echo, 53) && !fits(&echo, 54) && !fits(&echo, 55) && fits(&echo, 56));
}
