//! IP networks: `10.0.0.0/8`, `::1`.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

/// A network, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network(IpNet);

impl Network {
    /// Whether the network contains an address. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`), which a dual-stack socket
    /// reports, counts as the IPv4 address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let network = network.map_err(|_| {
            format!("`{text}` is not an IP address or network; write one such as `127.0.0.1`, `10.0.0.0/8` or `fd00::/8`")
        })?;
        if network.addr().to_canonical() != network.addr() {
            return Err(format!("`{text}` is an IPv4-mapped address; write the IPv4 address itself"));
        }
        // Either the address or the prefix is a typing error, and who is trusted must not be guessed.
        if network.trunc() != network {
            return Err(format!(
                "`{text}` has address bits beyond its prefix; did you mean `{}`?",
                network.trunc()
            ));
        }
        Ok(Network(network))
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contains(network: &str, address: &str) -> bool {
        let network: Network = network.parse().expect("a network");
        network.contains(address.parse().expect("an address"))
    }

    #[test]
    fn a_network_contains_the_addresses_of_its_prefix() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", &["10.255.1.2", "::ffff:10.1.2.3"][..], &["11.0.0.1"][..]),
            ("127.0.0.1", &["127.0.0.1"], &["127.0.0.2"]),
            ("0.0.0.0/0", &["8.8.8.8"], &["::1"]),
            ("::/0", &["::1"], &["8.8.8.8"]),
            ("fd00::/8", &["fd12::1"], &["fe80::1"]),
            ("192.168.1.128/25", &[], &["192.168.1.127"]),
        ] {
            for address in inside {
                assert!(contains(network, address), "{address} in {network}");
            }
            for address in outside {
                assert!(!contains(network, address), "{address} in {network}");
            }
        }
    }

    #[test]
    fn invalid_networks_are_rejected() {
        for text in
            ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/8/8", "10.0.0/8", "::1/129", "a.b"]
        {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        let error = "10.1.0.0/8".parse::<Network>().expect_err("bits beyond the prefix");
        assert_eq!(error, "`10.1.0.0/8` has address bits beyond its prefix; did you mean `10.0.0.0/8`?");
        assert!("::ffff:10.0.0.1".parse::<Network>().is_err());
    }

    proptest! {
        #[test]
        fn a_formatted_network_parses_to_the_same_network(bits in any::<u128>(), prefix in 0u8..=128, four in any::<bool>()) {
            let address = if four {
                IpAddr::from(std::net::Ipv4Addr::from_bits(u32::try_from(bits >> 96).expect("32 bits")))
            } else {
                IpAddr::from(std::net::Ipv6Addr::from_bits(bits))
            };
            let network = IpNet::new_assert(address, if four { prefix.min(32) } else { prefix }).trunc();
            prop_assume!(network.addr().to_canonical() == network.addr());
            prop_assert_eq!(network.to_string().parse(), Ok(Network(network)));
            prop_assert!(Network(network).contains(network.addr()));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,12}|[0-9.:/]{0,20}") {
            let _ = text.parse::<Network>();
        }
    }
}
