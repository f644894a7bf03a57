//! Networks of addresses: `10.0.0.0/8`, `::1`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Serialize;

/// Addresses whose first bits are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub(crate) struct Network {
    /// The first of them: all bits behind the prefix are zero.
    first: IpAddr,
    /// How many bits are the same.
    prefix: u32,
}

impl Network {
    /// Whether an address is one of them. An IPv4 address in the clothes of IPv6 (`::ffff:10.0.0.1`), as a socket for
    /// both tells it, counts as what it is.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4()
            && masked(address, self.prefix) == masked(self.first, self.prefix)
    }
}

/// The bits of an address, left-aligned, of which all behind the prefix are zero.
fn masked(address: IpAddr, prefix: u32) -> u128 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    // Shifting by all bits at once is not defined, and no bit is left then.
    bits & u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "write an address or a network, such as `127.0.0.1`, `10.0.0.0/8` or `fd00::/8`";
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let Ok(first) = address.parse::<IpAddr>() else {
            return Err(format!("`{text}` is no network; {FORMS}"));
        };
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let prefix = digits.parse().ok().filter(|prefix| *prefix <= bits);
                prefix.ok_or_else(|| format!("`{text}`: such a network has a prefix of 0 to {bits} bits"))?
            }
            Some(_) => return Err(format!("`{text}` is no network; {FORMS}")),
        };
        if first.to_canonical() != first {
            return Err(format!("`{text}`: write the IPv4 address itself"));
        }
        // Bits behind the prefix are a slip of either the address or the prefix, and a trusted network is no place to
        // guess.
        if masked(first, prefix) != masked(first, bits) {
            return Err(format!("`{text}` has bits behind its prefix of {prefix}"));
        }
        Ok(Network { first, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
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
    fn a_network_has_the_addresses_of_its_prefix() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::/0", "8.8.8.8", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("192.168.1.128/25", "192.168.1.127", false),
        ] {
            assert_eq!(contains(network, address), expected, "{address} in {network}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/8/8", "10.0.0/8", "::1/129", "a.b"]
        {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        let slip = "10.1.0.0/8".parse::<Network>().expect_err("a slip");
        assert_eq!(slip, "`10.1.0.0/8` has bits behind its prefix of 8");
        assert!("::ffff:10.0.0.1".parse::<Network>().is_err());
    }

    proptest! {
        #[test]
        fn a_network_is_read_as_it_was_printed(bits in any::<u128>(), prefix in 0u32..=128, four in any::<bool>()) {
            let network = if four {
                let prefix = prefix.min(32);
                let kept = u32::try_from(bits >> 96).expect("32 bits") & u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                Network { first: std::net::Ipv4Addr::from_bits(kept).into(), prefix }
            } else {
                let kept = bits & u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                Network { first: std::net::Ipv6Addr::from_bits(kept).into(), prefix }
            };
            prop_assume!(network.first.to_canonical() == network.first);
            prop_assert_eq!(network.to_string().parse(), Ok(network));
            prop_assert!(network.contains(network.first));
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,12}|[0-9.:/]{0,20}") {
            let _ = text.parse::<Network>();
        }
    }
}
